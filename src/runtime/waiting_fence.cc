#include "runtime/waiting_fence.h"

#include "os/error.h"

namespace changeover {

Fence::Guard& Fence::Guard::operator=(Guard&& other) noexcept {
  if (this != &other) {
    release();
    fence_ = other.fence_;
    version_ = other.version_;
    other.fence_ = nullptr;
  }
  return *this;
}

void Fence::Guard::release() {
  if (fence_ != nullptr) {
    fence_->release_guard();
    fence_ = nullptr;
  }
}

}  // namespace changeover

namespace changeover::runtime {

Result<Fence::Guard> WaitingFence::acquire(std::chrono::nanoseconds timeout) {
  if (const auto version = state_.try_enter()) {
    return Guard(this, *version);
  }
  std::optional<VersionStamp> version;
  std::unique_lock lock(mutex_);
  opened_.wait_for(lock, timeout, [&] {
    version = state_.try_enter();
    return version.has_value();
  });
  if (version) {
    return Guard(this, *version);
  }
  return Status(Code::kRefused, "fenced: " + state_.reason());
}

void WaitingFence::release_guard() {
  if (state_.leave()) {
    const std::lock_guard lock(mutex_);
    drained_.notify_all();
  }
}

Status WaitingFence::raise_and_drain(update::FenceReason reason, VersionStamp about) {
  const bool was_up = state_.up();
  if (state_.raise(reason, about) == 0) {
    return {};
  }
  const Instant begin = clock_.now();
  std::unique_lock lock(mutex_);
  if (drained_.wait_for(lock, drain_, [&] { return state_.readers() == 0; })) {
    return {};
  }
  const uint32_t inside = state_.readers();
  if (!was_up) {
    state_.lower();
    opened_.notify_all();
  }
  return {Code::kDeadline, "waited " + os::duration_text((clock_.now() - begin).count()) + " for " +
                               std::to_string(inside) +
                               " step(s) still inside to end; end them, then begin again"};
}

void WaitingFence::wake_readers() {
  if (state_.open()) {
    const std::lock_guard lock(mutex_);
    opened_.notify_all();
  }
}

}  // namespace changeover::runtime
