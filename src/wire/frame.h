// A frame of the frozen wire: header, metadata, payload (rules W1-W5). docs/wire_format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <changeover/tensor.h>

namespace changeover::wire {

inline constexpr int64_t kEnd = 0;
inline constexpr int64_t kBucket = 1;
inline constexpr uint64_t kHeaderBytes = 32;
inline constexpr uint64_t kMetadataBytesMax = 64ull << 20;   // rule W7
inline constexpr uint64_t kBucketBytesDefault = 1ull << 30;  // rule W4

struct Header {
  int64_t command = kEnd;
  int64_t metadata_bytes = 0;
  int64_t payload_bytes = 0;
  int64_t version = 0;
  bool operator==(const Header&) const = default;
};

// One entry of a frame's metadata: a tensor, and where its bytes lie in the payload.
struct Entry {
  TensorSpec spec;
  uint64_t offset = 0;
  uint64_t nbytes = 0;
  bool operator==(const Entry&) const = default;
};

}  // namespace changeover::wire
