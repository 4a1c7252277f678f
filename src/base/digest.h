// XXH3-128 of bytes (seed 0, canonical byte order), whole or in parts.
#pragma once

#include <cstddef>
#include <span>

#include <changeover/types.h>

namespace changeover::base {

// Digests a sequence of bytes given in any parts; equal bytes give equal digests however they were
// cut. Holds its state inline: no allocation, copying it forks the digest.
class Hasher {
 public:
  Hasher() { reset(); }

  void reset();
  void update(std::span<const std::byte> bytes);
  // Of everything since the last reset. More may be added after.
  Digest finish() const;

 private:
  // The size and alignment of the library's state, checked where its header is included.
  struct alignas(64) State {
    std::byte bytes[576];
  };
  State state_;
};

Digest digest(std::span<const std::byte> bytes);

}  // namespace changeover::base
