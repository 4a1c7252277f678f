// Which tensors travel together (rules W3, W4, W9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <changeover/status.h>
#include <changeover/tensor.h>

#include "wire/frame.h"

namespace changeover::wire {

// Tensors [first, first + count) of the list, back to back in one frame.
struct Bucket {
  size_t first = 0;
  size_t count = 0;
  uint64_t payload_bytes = 0;   // At least 1.
  uint64_t metadata_bytes = 0;  // Size of what encode_metadata() gives for them.
  bool operator==(const Bucket&) const = default;
};

// Cuts the list into buckets by the rule of the frozen wire; every bucket has at least one byte.
// kInvalidArgument for an empty list, a model of zero-size tensors alone (W9), a name that comes
// twice, a spec that the wire cannot say, bucket_bytes of 0, or metadata over the limit of W7.
Result<std::vector<Bucket>> plan_buckets(std::span<const TensorSpec> specs, uint64_t bucket_bytes);

}  // namespace changeover::wire
