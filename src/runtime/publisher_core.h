// The publisher's control side: the coordinator and the listener under one lock. Network events
// come in on the loop thread, orders (stream, digest, done) go out to the thread in publish().
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <changeover/publisher.h>

#include "control/listener.h"
#include "control/loop.h"
#include "os/clock.h"
#include "protocol/coordinator.h"

namespace changeover::runtime {

class PublisherCore final : public control::ChannelHandler {
 public:
  using Coordinator = protocol::Coordinator;

  PublisherCore(const PublisherOptions& options, const Incarnation& incarnation, uint32_t peers_max,
                const os::Clock& clock);
  ~PublisherCore() override;

  Status listen();
  const Endpoint& endpoint() const { return listener_->endpoint(); }

  // Any thread.
  std::vector<PeerStatus> peers() const;
  Status wait_for_ranks(uint32_t count, std::chrono::nanoseconds timeout);

  // The publishing thread.
  struct Attachment {
    control::PeerId peer = 0;
    RankName rank;
    os::Fd socket;
  };
  // Data connections of accepted ranks that the road does not have yet.
  std::vector<Attachment> take_attachments();
  bool is_connected(control::PeerId peer) const;
  void feed(const Coordinator::Event& event);
  // Waits for the next order; the coordinator's deadlines end it. Sends and closes are done here.
  Coordinator::Action wait_for_order();
  // One that is there already.
  std::optional<Coordinator::Action> take_order();
  // UpdateDone is among the orders that wait.
  bool is_done() const;
  // Its data connection is of no use any more: the rank is to come back with a new one.
  void let_go(control::PeerId peer, const Status& why);

  // ChannelHandler, loop thread.
  void on_open(control::PeerId peer, const std::string& address) override;
  void on_data(control::PeerId peer, os::Fd fd) override;
  void on_frame(control::PeerId peer, std::span<const uint8_t> body) override;
  void on_closed(control::PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

 private:
  struct Peer {
    std::string address;
    bool has_data = false;
    os::Fd pending;  // The data connection until the road takes it.
  };
  // Holds the lock; lines that were logged under it go out after it, so that the caller's function
  // may call back.
  class Session {
   public:
    explicit Session(PublisherCore& core) : core_(core), lock_(core.mutex_) {}
    ~Session();

   private:
    PublisherCore& core_;
    std::unique_lock<std::mutex> lock_;
  };
  // REQUIRES of both: within a Session.
  void handle(const Coordinator::Event& event);
  void log(std::string line);
  void rearm();

  const PublisherOptions& options_;
  const os::Clock& clock_;
  const uint32_t peers_max_;
  control::Loop loop_;
  std::unique_ptr<control::Listener> listener_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Coordinator coordinator_;
  std::map<control::PeerId, Peer> peers_;
  std::deque<Coordinator::Action> orders_;
  std::vector<std::string> lines_;  // For the caller's log, at the end of the session.
  Instant armed_ = Instant::never();
  std::string last_refused_;  // Who and why, since ranks were last waited for with success.
};

}  // namespace changeover::runtime
