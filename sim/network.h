// A connection between a rank and a publisher: a control channel and a data road beside it. Each
// direction keeps its order, with delays; a break loses what is on its way and is noticed by each
// end in its own time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sim/world.h"

namespace changeover::sim {

enum class End : uint8_t { kRank, kPublisher };

class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Callbacks {
    std::function<void(protocol::Message)> on_message;
    std::function<void(Status)> on_closed;
    // The rank's end: bytes of a stream; none = the road left this rank out of it.
    std::function<void(uint64_t stream, std::vector<std::byte> bytes)> on_data;
  };

  Link(World& world, uint64_t id) : world_(world), id_(id) {}
  uint64_t id() const { return id_; }
  bool is_open() const { return open_; }

  void attach(End end, Callbacks callbacks) { ends_[index(end)] = std::move(callbacks); }
  // This end's process is gone or no longer listens.
  void detach(End end) { ends_[index(end)] = {}; }

  void send(End from, protocol::Message message) {
    deliver(other(from), [message = std::move(message)](Callbacks& to) {
      if (to.on_message) {
        to.on_message(message);
      }
    });
  }
  void send_data(uint64_t stream, std::vector<std::byte> bytes) {
    deliver(End::kRank, [stream, bytes = std::move(bytes)](Callbacks& to) {
      if (to.on_data) {
        to.on_data(stream, bytes);
      }
    });
  }
  // What was sent before still arrives; the other end hears of it after that.
  void close(End from, const Status& why) {
    deliver(other(from), [self = shared_from_this(), why](Callbacks& to) {
      self->open_ = false;
      if (to.on_closed) {
        to.on_closed(why);
      }
    });
    detach(from);
  }
  // What is on its way is lost. Either end hears of it later.
  void cut(const Status& why) {
    if (!open_) {
      return;
    }
    open_ = false;
    for (End end : {End::kRank, End::kPublisher}) {
      world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(300)),
                             [self = shared_from_this(), end, why] {
                               const auto heard = self->ends_[index(end)].on_closed;
                               if (heard) {
                                 heard(why);
                               }
                             });
    }
  }

 private:
  static size_t index(End end) { return static_cast<size_t>(end); }
  static End other(End end) { return end == End::kRank ? End::kPublisher : End::kRank; }

  void deliver(End to, std::function<void(Callbacks&)> what) {
    if (!open_) {
      return;
    }
    Instant& last = last_[index(to)];
    last = std::max(last, world_.scheduler.now() + world_.delay(milliseconds(0), milliseconds(4)));
    world_.scheduler.at(last, [self = shared_from_this(), to, what = std::move(what)] {
      if (self->open_) {
        Callbacks callbacks = self->ends_[index(to)];  // it may detach itself meanwhile
        what(callbacks);
      }
    });
  }

  World& world_;
  uint64_t id_;
  bool open_ = true;
  std::array<Callbacks, 2> ends_;
  std::array<Instant, 2> last_{};
};

// Shared: both ends and the messages on their way hold it; whoever lets go last ends it.
using LinkPtr = std::shared_ptr<Link>;

}  // namespace changeover::sim
