#include "base/digest.h"

#include "base/digest_kernel.h"

namespace changeover::base {

namespace {

const DigestKernel& kernel() {
#if defined(__x86_64__)
  static const DigestKernel& chosen =
      __builtin_cpu_supports("avx2") ? avx2_digest_kernel() : portable_digest_kernel();
  return chosen;
#else
  return portable_digest_kernel();
#endif
}

}  // namespace

void Hasher::reset() {
  static_assert(sizeof(State) == DigestKernel::kStateBytes);
  kernel().reset(state_.bytes);
}

void Hasher::update(std::span<const std::byte> bytes) {
  kernel().update(state_.bytes, bytes.data(), bytes.size());
}

Digest Hasher::finish() const {
  Digest digest;
  kernel().finish(state_.bytes, digest.bytes.data());
  return digest;
}

Digest digest(std::span<const std::byte> bytes) {
  Digest digest;
  kernel().whole(bytes.data(), bytes.size(), digest.bytes.data());
  return digest;
}

}  // namespace changeover::base
