#include "os/clock.h"

#include <time.h>

namespace changeover::os {

Instant SystemClock::now() const {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec};
}

}  // namespace changeover::os
