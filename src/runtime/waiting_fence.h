// The fence that readers wait at: update::FenceState decides, this waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include <changeover/fence.h>

#include "os/clock.h"
#include "update/fence.h"

namespace changeover::runtime {

class WaitingFence final : public Fence, public update::FenceRaiser {
 public:
  // `drain`: how long raising it waits for steps already inside. `reclaim`: how long an update in
  // `swap` waits for guards of the half that it will write. `give_up`: why neither is to go on, if
  // there is a reason; asked at each wake_writer() and once more before the writer may write, on
  // the writer's thread. It must not use the fence.
  WaitingFence(std::chrono::nanoseconds drain, std::chrono::nanoseconds reclaim,
               const os::Clock& clock, std::function<Status()> give_up = {})
      : drain_(drain), reclaim_(reclaim), clock_(clock), give_up_(std::move(give_up)) {}

  update::FenceState& state() { return state_; }
  const update::FenceState& state() const { return state_; }

  // Fence. Any thread.
  Result<Guard> acquire(std::chrono::nanoseconds timeout) override;
  Result<Guard> acquire_version(VersionStamp version, std::chrono::nanoseconds timeout) override;
  uint32_t half() const override { return state_.half(); }
  bool up() const override { return state_.up(); }
  std::string reason() const override { return state_.reason(); }
  bool is_open() const { return state_.open(); }

  // FenceRaiser. The writer's thread. kDeadline if a step did not end in time, or give_up's reason;
  // the fence is then as it was (case B60).
  Status raise_and_drain(update::FenceReason reason, VersionStamp about) override;
  Status reclaim(uint32_t half) override;

  // The writer's thread: when raise_and_drain() last found it down, since forget_raised().
  std::optional<Instant> raised_at() const { return raised_at_; }
  void forget_raised() { raised_at_.reset(); }

  // The writer's thread, after the state may have opened.
  void wake_readers();
  // Any thread, after give_up may have got a reason.
  void wake_writer();

 private:
  void release_guard(uint32_t half) override;
  template <typename Inside>
  Status wait_until_empty(Inside&& inside, std::chrono::nanoseconds timeout,
                          std::string_view of_what);
  template <typename Enter>
  Result<Guard> wait_to_enter(Enter&& enter, std::chrono::nanoseconds timeout);

  update::FenceState state_;
  std::chrono::nanoseconds drain_;
  std::chrono::nanoseconds reclaim_;
  const os::Clock& clock_;
  const std::function<Status()> give_up_;
  std::optional<Instant> raised_at_;
  std::mutex mutex_;
  std::condition_variable opened_;
  std::condition_variable drained_;
};

}  // namespace changeover::runtime
