#include "runtime/inbox.h"

#include <utility>

#include "os/wait.h"

namespace changeover::runtime {

std::optional<ChannelEvent> Inbox::take() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) {
    return std::nullopt;
  }
  ChannelEvent event = std::move(events_.front());
  events_.pop_front();
  room_.notify_one();
  return event;
}

void Inbox::look(const std::function<void(const ChannelEvent&)>& see) const {
  const std::lock_guard lock(mutex_);
  for (const ChannelEvent& event : events_) {
    see(event);
  }
}

void Inbox::wait(const os::Clock& clock, Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !events_.empty() || woken_ || stopped_; };
  (void)os::wait_until(arrived_, lock, clock, deadline, ready);
  woken_ = false;
}

void Inbox::set_road(transport::ReceiveRoad* road) {
  const std::lock_guard lock(mutex_);
  road_ = road;
  if (road_ != nullptr && (!events_.empty() || stopped_)) {
    road_->wake();
  }
}

void Inbox::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  arrived_.notify_all();
  if (road_ != nullptr) {
    road_->wake();
  }
}

void Inbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    arrived_.notify_all();
    room_.notify_all();
    if (road_ != nullptr) {
      road_->wake();
    }
  }
  if (on_event_) {
    on_event_();
  }
}

bool Inbox::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Inbox::push(ChannelEvent event) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return events_.size() < kEventsMax || stopped_; });
  if (stopped_) {
    return;
  }
  events_.push_back(std::move(event));
  arrived_.notify_all();
  if (road_ != nullptr) {
    road_->wake();
  }
  lock.unlock();
  if (on_event_) {
    on_event_();
  }
}

void Inbox::on_open(control::PeerId peer, const std::string&) {
  push({ChannelEvent::Kind::kOpen, peer, {}, {}, {}});
}

void Inbox::on_data(control::PeerId peer, os::Fd fd) {
  push({ChannelEvent::Kind::kData, peer, std::move(fd), {}, {}});
}

void Inbox::on_frame(control::PeerId peer, std::span<const uint8_t> body) {
  push({ChannelEvent::Kind::kFrame, peer, {}, {body.begin(), body.end()}, {}});
}

void Inbox::on_closed(control::PeerId peer, const Status& why) {
  push({ChannelEvent::Kind::kClosed, peer, {}, {}, why});
}

void Inbox::on_refused(const std::string&, const Status& why) {
  push({ChannelEvent::Kind::kRefused, 0, {}, {}, why});
}

}  // namespace changeover::runtime
