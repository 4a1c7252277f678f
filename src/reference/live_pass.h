// What a step does: reads this rank's parameters, for real, and says what it read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <changeover/parameter_store.h>

namespace changeover::reference {

struct PassResult {
  uint64_t checksum = 0;
  uint32_t window = 0;
};

// A forward pass reads every parameter; at millions of bytes each step would cost more than the
// update it watches. So step n reads blocks n % windows of all, evenly spread over the whole
// model, and `windows` steps in a row read every byte. Equal bytes give equal checksums per window.
class LivePass {
 public:
  static constexpr size_t kBlockBytes = 64 << 10;

  // `store` must outlive it.
  LivePass(const ParameterStore& store, uint64_t bytes_max);

  uint32_t windows() const { return windows_; }
  // The caller holds a guard, of this half.
  PassResult run(uint64_t step, uint32_t half) const;

 private:
  const ParameterStore& store_;
  uint32_t windows_ = 1;
};

}  // namespace changeover::reference
