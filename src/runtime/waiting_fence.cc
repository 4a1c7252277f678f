#include "runtime/waiting_fence.h"

#include "os/error.h"
#include "os/wait.h"

namespace changeover {

Fence::Guard& Fence::Guard::operator=(Guard&& other) noexcept {
  if (this != &other) {
    release();
    fence_ = other.fence_;
    version_ = other.version_;
    half_ = other.half_;
    other.fence_ = nullptr;
  }
  return *this;
}

void Fence::Guard::release() {
  if (fence_ != nullptr) {
    fence_->release_guard(half_);
    fence_ = nullptr;
  }
}

}  // namespace changeover

namespace changeover::runtime {

template <typename Enter>
Result<Fence::Guard> WaitingFence::wait_to_enter(Enter&& enter, std::chrono::nanoseconds timeout) {
  std::optional<update::FenceState::Pin> pin = enter();
  if (!pin && timeout > std::chrono::nanoseconds(0)) {
    std::unique_lock lock(mutex_);
    (void)os::wait_until(opened_, lock, clock_, clock_.now() + timeout, [&] {
      pin = enter();
      return pin.has_value();
    });
  }
  if (pin) {
    return Guard(this, pin->version, pin->half);
  }
  return Status(Code::kRefused, "fenced: " + state_.reason());
}

Result<Fence::Guard> WaitingFence::acquire(std::chrono::nanoseconds timeout) {
  return wait_to_enter([this] { return state_.try_enter(); }, timeout);
}

Result<Fence::Guard> WaitingFence::acquire_version(VersionStamp version,
                                                   std::chrono::nanoseconds timeout) {
  auto guard = wait_to_enter([&] { return state_.try_enter(version); }, timeout);
  if (guard.ok() || !state_.open()) {
    return guard;
  }
  const auto live = state_.version();
  return Status(Code::kRefused, "version " + std::to_string(version.version) +
                                    " cannot be had: version " +
                                    std::to_string(live ? live->version : -1) + " is live");
}

void WaitingFence::release_guard(uint32_t half) {
  if (state_.leave(half)) {
    const std::lock_guard lock(mutex_);
    drained_.notify_all();
  }
}

template <typename Inside>
Status WaitingFence::wait_until_empty(Inside&& inside, std::chrono::nanoseconds timeout,
                                      std::string_view of_what) {
  const Instant begin = clock_.now();
  Status why;
  std::unique_lock lock(mutex_);
  const bool ended = os::wait_until(drained_, lock, clock_, begin + timeout, [&] {
    why = give_up_ ? give_up_() : Status();
    return !why.ok() || inside() == 0;
  });
  if (!ended) {
    why = {Code::kDeadline, "waited " + os::duration_text((clock_.now() - begin).count()) +
                                " for " + std::to_string(inside()) + std::string(of_what)};
  }
  return why;
}

Status WaitingFence::raise_and_drain(update::FenceReason reason, VersionStamp about) {
  const bool was_up = state_.up();
  if (!was_up) {
    raised_at_ = clock_.now();
  }
  (void)state_.raise(reason, about);
  Status status = wait_until_empty([&] { return state_.readers(); }, drain_,
                                   " step(s) still inside to end; end them, then begin again");
  if (!status.ok() && !was_up) {
    state_.lower();
    wake_readers();
  }
  return status;
}

Status WaitingFence::reclaim(uint32_t half) {
  if (state_.retire(half) == 0) {
    return {};
  }
  Status status = wait_until_empty([&] { return state_.readers(half); }, reclaim_,
                                   " guard(s) of the old half, which this update would overwrite; "
                                   "drop them, then begin again");
  if (!status.ok()) {
    state_.keep(half);
  }
  return status;
}

void WaitingFence::wake_writer() {
  const std::lock_guard lock(mutex_);
  drained_.notify_all();
}

void WaitingFence::wake_readers() {
  if (state_.open()) {
    const std::lock_guard lock(mutex_);
    opened_.notify_all();
  }
}

}  // namespace changeover::runtime
