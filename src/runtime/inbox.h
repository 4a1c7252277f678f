// From the control channel's loop thread to a rank's receive thread: a bounded queue, and a way to
// wake that thread wherever it waits (here, or in its road).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/channel.h"
#include "os/clock.h"
#include "transport/transport.h"

namespace changeover::runtime {

struct ChannelEvent {
  enum class Kind : uint8_t { kOpen, kData, kFrame, kClosed, kRefused };
  Kind kind = Kind::kOpen;
  control::PeerId peer = 0;
  os::Fd fd;
  std::vector<uint8_t> body;
  Status why;
};

class Inbox final : public control::ChannelHandler {
 public:
  // A publisher that says more than this before the rank listens is made to wait.
  static constexpr size_t kEventsMax = 256;

  // `on_event`: called after each event and by stop(), without a lock of the inbox.
  explicit Inbox(std::function<void()> on_event = {}) : on_event_(std::move(on_event)) {}

  // Receive thread.
  std::optional<ChannelEvent> take();
  // The events that wait, oldest first; they stay.
  void look(const std::function<void(const ChannelEvent&)>& see) const;
  // Until there is an event, stop() was called, or the deadline passed.
  void wait(const os::Clock& clock, Instant deadline);
  // Woken by every event from now on; null = none.
  void set_road(transport::ReceiveRoad* road);

  // Any thread. The receive thread's wait, the one it is in or the next, ends at once.
  void wake();
  // Any thread. Wakes the receive thread for good; the loop thread never waits again.
  void stop();
  bool stopped() const;

  // ChannelHandler, loop thread.
  void on_open(control::PeerId peer, const std::string& address) override;
  void on_data(control::PeerId peer, os::Fd fd) override;
  void on_frame(control::PeerId peer, std::span<const uint8_t> body) override;
  void on_closed(control::PeerId peer, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

 private:
  void push(ChannelEvent event);

  const std::function<void()> on_event_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable room_;
  std::deque<ChannelEvent> events_;
  transport::ReceiveRoad* road_ = nullptr;
  bool woken_ = false;
  bool stopped_ = false;
};

}  // namespace changeover::runtime
