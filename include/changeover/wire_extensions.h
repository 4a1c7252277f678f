// Forms of the wire beyond the plain one (rule W6, docs/wire_format.md).
#pragma once

#include <cstdint>

namespace changeover {

// Which of them a rank reads, or a stream uses.
struct WireExtensions {
  bool xxh3 = false;     // A tensor's digest travels with it.
  bool aligned = false;  // A tensor starts at a multiple of 64 bytes of its frame's payload.
  bool slices = false;   // A tensor larger than a bucket is split over frames.
  bool operator==(const WireExtensions&) const = default;
};
inline constexpr WireExtensions kEveryWireExtension{true, true, true};

// A part of a tensor's bytes in C order: it starts at byte `first` of `total`.
struct TensorSlice {
  uint64_t first = 0;
  uint64_t total = 0;  // Of the whole tensor.
  bool operator==(const TensorSlice&) const = default;
};

}  // namespace changeover
