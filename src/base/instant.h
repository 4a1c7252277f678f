// A point of monotonic time, as an argument. Only os/clock.h reads a real clock.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace changeover {

struct Instant {
  int64_t ns = 0;
  auto operator<=>(const Instant&) const = default;
  Instant operator+(std::chrono::nanoseconds d) const { return {ns + d.count()}; }
  std::chrono::nanoseconds operator-(Instant o) const {
    return std::chrono::nanoseconds(ns - o.ns);
  }
  static constexpr Instant never() { return {INT64_MAX}; }
};

}  // namespace changeover
