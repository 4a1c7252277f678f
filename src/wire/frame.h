// A frame of the frozen wire: header, metadata, payload (rules W1-W5). docs/wire_format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <changeover/tensor.h>
#include <changeover/types.h>
#include <changeover/wire_extensions.h>

namespace changeover::wire {

inline constexpr int64_t kEnd = 0;
inline constexpr int64_t kBucket = 1;
inline constexpr uint64_t kHeaderBytes = 32;
inline constexpr uint64_t kMetadataBytesMax = 64ull << 20;   // rule W7
inline constexpr uint64_t kBucketBytesDefault = 1ull << 30;  // rule W4
inline constexpr uint64_t kAlignmentBytes = 64;              // rule W6

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
  uint64_t nbytes = 0;  // of this part, where there is a slice
  // Extensions (rule W6).
  std::optional<TensorSlice> slice = std::nullopt;
  std::optional<Digest> xxh3 = std::nullopt;  // of the whole tensor, with its last part
  bool is_last_part() const { return !slice || slice->first + nbytes == slice->total; }
  bool operator==(const Entry&) const = default;
};

}  // namespace changeover::wire
