// XXH3-128 compiled once per instruction set. Only digest.cc chooses between them.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace changeover::base {

// `state` is DigestKernel::kStateBytes bytes, aligned to 64; all kernels share its layout.
struct DigestKernel {
  static constexpr size_t kStateBytes = 576;
  void (*reset)(void* state);
  void (*update)(void* state, const void* data, size_t bytes);
  void (*finish)(const void* state, uint8_t digest[16]);
  void (*whole)(const void* data, size_t bytes, uint8_t digest[16]);
};

const DigestKernel& portable_digest_kernel();
#if defined(__x86_64__)
const DigestKernel& avx2_digest_kernel();  // REQUIRES: the CPU has AVX2.
#endif

}  // namespace changeover::base
