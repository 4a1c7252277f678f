// Waiting for a condition until a point of our clock. The standard wait_for() adds its timeout to a
// clock of its own, and a long one wraps.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "os/clock.h"

namespace changeover::os {

// False when the deadline passed first. `lock` is held, as by condition_variable::wait().
template <typename Ready>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                const Clock& clock, Instant deadline, Ready&& ready) {
  if (deadline == Instant::never()) {
    changed.wait(lock, std::forward<Ready>(ready));
    return true;
  }
  return changed.wait_for(lock, deadline - clock.now(), std::forward<Ready>(ready));
}

}  // namespace changeover::os
