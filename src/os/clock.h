// The one place where a real clock is read. Everything above takes a Clock or an Instant.
#pragma once

#include "base/instant.h"

namespace changeover::os {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
};

// CLOCK_MONOTONIC. Stateless: any number of objects, any thread.
class SystemClock final : public Clock {
 public:
  Instant now() const override;
};

}  // namespace changeover::os
