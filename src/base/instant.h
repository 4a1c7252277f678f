// A point of monotonic time, as an argument. Only os/clock.h reads a real clock.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace changeover {

struct Instant {
  int64_t ns = 0;
  auto operator<=>(const Instant&) const = default;
  // As far as time goes: a timeout of nanoseconds::max() is never().
  constexpr Instant operator+(std::chrono::nanoseconds d) const {
    int64_t sum = 0;
    if (__builtin_add_overflow(ns, static_cast<int64_t>(d.count()), &sum)) {
      sum = d.count() > 0 ? INT64_MAX : INT64_MIN;
    }
    return {sum};
  }
  std::chrono::nanoseconds operator-(Instant o) const {
    return std::chrono::nanoseconds(ns - o.ns);
  }
  static constexpr Instant never() { return {INT64_MAX}; }
};

}  // namespace changeover
