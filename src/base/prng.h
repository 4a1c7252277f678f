// Seeded pseudo-random numbers (xoshiro256**): the same seed gives the same sequence everywhere.
// Not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace changeover::base {

class Prng {
 public:
  explicit Prng(uint64_t seed);

  uint64_t next();
  // Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  uint64_t below(uint64_t bound);
  // Uniform in [low, high]. REQUIRES: low <= high.
  int64_t between(int64_t low, int64_t high);
  // Uniform in [0, 1).
  double unit();
  bool chance(double probability) { return unit() < probability; }
  void fill(std::span<std::byte> bytes);

 private:
  uint64_t state_[4];
};

}  // namespace changeover::base
