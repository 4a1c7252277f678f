#include "base/digest.h"

#include <algorithm>
#include <iterator>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace changeover::base {

namespace {

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
  return digest;
}

}  // namespace

void Hasher::reset() {
  static_assert(sizeof(XXH3_state_t) <= sizeof(State) && alignof(XXH3_state_t) <= alignof(State));
  auto* state = new (state_.bytes) XXH3_state_t;
  XXH3_INITSTATE(state);
  XXH3_128bits_reset(state);
}

void Hasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(reinterpret_cast<XXH3_state_t*>(state_.bytes), bytes.data(), bytes.size());
}

Digest Hasher::finish() const {
  return canonical(XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.bytes)));
}

Digest digest(std::span<const std::byte> bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace changeover::base
