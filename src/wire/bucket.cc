#include "wire/bucket.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "wire/metadata.h"

namespace changeover::wire {

namespace {

Status check_names(std::span<const TensorSpec> specs) {
  std::vector<std::string_view> names;
  names.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return {Code::kInvalidArgument,
            "tensor " + base::quoted(*twice) + ": the name comes twice (W7)"};
  }
  return {};
}

// The rule itself, over sizes that are known to be good.
std::vector<Bucket> cut(std::span<const uint64_t> sizes, uint64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket open;
  const auto flush = [&] {
    buckets.push_back(open);
    open = {.first = open.first + open.count};
  };
  for (const uint64_t size : sizes) {
    if (open.payload_bytes > 0 && open.payload_bytes + size > bucket_bytes) {
      flush();
    }
    ++open.count;
    open.payload_bytes += size;
    if (open.payload_bytes >= bucket_bytes) {
      flush();
    }
  }
  if (open.payload_bytes > 0) {
    flush();
  } else if (open.count > 0 && !buckets.empty()) {
    // Zero-size tensors after the last byte: no bucket without bytes, so the last one takes them.
    buckets.back().count += open.count;
  }
  return buckets;
}

}  // namespace

Result<std::vector<Bucket>> plan_buckets(std::span<const TensorSpec> specs, uint64_t bucket_bytes) {
  if (bucket_bytes == 0) {
    return Status(Code::kInvalidArgument, "a bucket needs a size of at least 1 byte");
  }
  if (specs.empty()) {
    return Status(Code::kInvalidArgument, "there are no tensors to send");
  }
  CHANGEOVER_TRY(check_names(specs));
  std::vector<uint64_t> sizes;
  sizes.reserve(specs.size());
  uint64_t total = 0;
  for (const TensorSpec& spec : specs) {
    const Result<int64_t> bytes = byte_count(spec.dtype, spec.shape);
    if (!bytes.ok()) {
      return bytes.status().with_context("tensor " + base::quoted(spec.name));
    }
    sizes.push_back(static_cast<uint64_t>(*bytes));
    if (__builtin_add_overflow(total, sizes.back(), &total) || total > INT64_MAX) {
      return Status(Code::kInvalidArgument, "the tensors' bytes together overflow 64 bits");
    }
  }
  if (total == 0) {
    return Status(Code::kInvalidArgument,
                  "all " + std::to_string(specs.size()) +
                      " tensors are of zero size: a stream needs at least one byte (W9)");
  }
  std::vector<Bucket> buckets = cut(sizes, bucket_bytes);
  std::string metadata;
  for (Bucket& bucket : buckets) {
    metadata.clear();
    CHANGEOVER_TRY(encode_metadata(specs.subspan(bucket.first, bucket.count), metadata));
    bucket.metadata_bytes = metadata.size();
    if (metadata.size() > kMetadataBytesMax) {
      return Status(Code::kInvalidArgument,
                    "a bucket of " + std::to_string(bucket.count) + " tensors needs " +
                        std::to_string(metadata.size()) + " bytes of metadata, at most " +
                        std::to_string(kMetadataBytesMax) +
                        " are allowed (W7): use smaller buckets");
    }
  }
  return buckets;
}

}  // namespace changeover::wire
