// Which tensors travel together (rules W3, W4, W6, W9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/tensor.h>
#include <changeover/types.h>

#include "wire/frame.h"

namespace changeover::wire {

// Tensors [first, first + count) of the list, back to back in one frame.
struct Bucket {
  size_t first = 0;
  size_t count = 0;
  uint64_t payload_bytes = 0;   // At least 1.
  uint64_t metadata_bytes = 0;  // Size of what encode_bucket() gives for them.
  // Of tensors that are split (rule W6): bytes of the first one that went in earlier frames, and of
  // the last one that come in later frames.
  uint64_t sent_bytes = 0;
  uint64_t left_bytes = 0;
  bool operator==(const Bucket&) const = default;
};

// Cuts the list into buckets by the rule of the frozen wire; every bucket has at least one byte.
// With slices no bucket is larger than `bucket_bytes`: a larger tensor is split, its parts a
// multiple of 64 bytes where a bucket has room for that.
// kInvalidArgument for an empty list, a model of zero-size tensors alone (W9), a name that comes
// twice, a spec that the wire cannot say, bucket_bytes of 0, or metadata over the limit of W7.
Result<std::vector<Bucket>> plan_buckets(std::span<const TensorSpec> specs, uint64_t bucket_bytes,
                                         const WireExtensions& extensions = {});

// Where a tensor of a bucket, or a part of one, lies in the payload.
struct Place {
  size_t tensor = 0;
  uint64_t offset = 0;
  uint64_t first = 0;   // The tensor's byte at `offset`,
  uint64_t nbytes = 0;  // and how many from there on: all of them but for a part.
};

// The places of a bucket's tensors, in order.
class BucketWalk {
 public:
  // `sizes`: bytes of every tensor of the list; must outlive the walk.
  BucketWalk(const Bucket& bucket, std::span<const uint64_t> sizes, bool aligned)
      : bucket_(bucket), sizes_(sizes), aligned_(aligned), at_(bucket.first) {}
  std::optional<Place> next();

 private:
  Bucket bucket_;
  std::span<const uint64_t> sizes_;
  bool aligned_;
  size_t at_;
  uint64_t end_ = 0;  // Of what lies in the payload so far.
};

// Appends the bucket's metadata. `digests`: one per tensor of the list, written with xxh3; empty =
// zeros, to learn the size. Refuses what MetadataWriter does.
Status encode_bucket(std::span<const TensorSpec> specs, std::span<const uint64_t> sizes,
                     const Bucket& bucket, const WireExtensions& extensions,
                     std::span<const Digest> digests, std::string& out);

}  // namespace changeover::wire
