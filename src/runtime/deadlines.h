#pragma once

#include <string>
#include <utility>

#include <changeover/subscriber.h>

#include "os/error.h"

namespace changeover::runtime {

// A deadline of nothing is one that has passed, and a heartbeat of a quarter of nothing never
// rests.
inline Status check_deadlines(const Deadlines& deadlines) {
  constexpr std::chrono::nanoseconds kMin = std::chrono::milliseconds(1);
  constexpr std::chrono::nanoseconds kMax = std::chrono::hours(24);
  for (const auto& [name, value] :
       {std::pair{"connect", deadlines.connect}, std::pair{"begin", deadlines.begin},
        std::pair{"stall", deadlines.stall}, std::pair{"vote", deadlines.vote},
        std::pair{"drain", deadlines.drain}}) {
    if (value < kMin || value > kMax) {
      return {Code::kInvalidArgument, "deadlines." + std::string(name) + " is " +
                                          os::duration_text(value.count()) + ": 1 ms to 24 hours"};
    }
  }
  return {};
}

}  // namespace changeover::runtime
