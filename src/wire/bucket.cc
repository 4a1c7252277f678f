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

uint64_t align(uint64_t offset) {
  return (offset + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// The rule itself, over sizes that are known to be good.
class Cutter {
 public:
  Cutter(uint64_t bucket_bytes, const WireExtensions& extensions)
      : bucket_bytes_(bucket_bytes),
        part_bytes_(bucket_bytes < kAlignmentBytes ? bucket_bytes
                                                   : bucket_bytes - bucket_bytes % kAlignmentBytes),
        extensions_(extensions) {}

  void add(uint64_t size) {
    if (open_.payload_bytes > 0 && start(size) + size > bucket_bytes_) {
      flush();
    }
    ++open_.count;
    if (extensions_.slices && size > bucket_bytes_) {
      split(size);
    } else {
      open_.payload_bytes = start(size) + size;
    }
    if (open_.payload_bytes >= bucket_bytes_) {
      flush();
    }
  }

  std::vector<Bucket> finish() {
    if (open_.payload_bytes > 0) {
      flush();
    } else if (open_.count > 0 && !buckets_.empty()) {
      // Zero-size tensors after the last byte: no bucket without bytes, so the last takes them.
      buckets_.back().count += open_.count;
    }
    return std::move(buckets_);
  }

 private:
  uint64_t start(uint64_t size) const {
    return extensions_.aligned && size > 0 ? align(open_.payload_bytes) : open_.payload_bytes;
  }

  void flush() {
    buckets_.push_back(open_);
    open_ = {.first = open_.first + open_.count};
  }

  // A bucket for each part but the last, which leaves its bucket open for others.
  void split(uint64_t left) {
    while (left > part_bytes_) {
      left -= part_bytes_;
      open_.payload_bytes = part_bytes_;
      open_.left_bytes = left;
      buckets_.push_back(open_);
      open_ = {.first = open_.first + open_.count - 1,
               .count = 1,
               .sent_bytes = (open_.count == 1 ? open_.sent_bytes : 0) + part_bytes_};
    }
    open_.payload_bytes = left;
  }

  const uint64_t bucket_bytes_;
  const uint64_t part_bytes_;
  const WireExtensions extensions_;
  std::vector<Bucket> buckets_;
  Bucket open_;
};

}  // namespace

std::optional<Place> BucketWalk::next() {
  if (at_ == bucket_.first + bucket_.count) {
    return std::nullopt;
  }
  Place place{at_, end_, at_ == bucket_.first ? bucket_.sent_bytes : 0, 0};
  ++at_;
  place.nbytes = sizes_[place.tensor] - place.first -
                 (at_ == bucket_.first + bucket_.count ? bucket_.left_bytes : 0);
  if (aligned_ && place.nbytes > 0) {
    place.offset = align(end_);
  }
  end_ = place.offset + place.nbytes;
  return place;
}

Status encode_bucket(std::span<const TensorSpec> specs, std::span<const uint64_t> sizes,
                     const Bucket& bucket, const WireExtensions& extensions,
                     std::span<const Digest> digests, std::string& out) {
  MetadataWriter writer(out);
  BucketWalk walk(bucket, sizes, extensions.aligned);
  while (const auto place = walk.next()) {
    const uint64_t size = sizes[place->tensor];
    std::optional<TensorSlice> slice;
    if (place->nbytes != size) {
      slice = {place->first, size};
    }
    std::optional<Digest> xxh3;
    if (extensions.xxh3 && place->first + place->nbytes == size) {
      xxh3 = digests.empty() ? Digest{} : digests[place->tensor];
    }
    CHANGEOVER_TRY(writer.add(specs[place->tensor], place->offset, place->nbytes, slice, xxh3));
  }
  writer.close();
  return {};
}

Result<std::vector<Bucket>> plan_buckets(std::span<const TensorSpec> specs, uint64_t bucket_bytes,
                                         const WireExtensions& extensions) {
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
  Cutter cutter(bucket_bytes, extensions);
  for (const uint64_t size : sizes) {
    cutter.add(size);
  }
  std::vector<Bucket> buckets = cutter.finish();
  std::string metadata;
  for (Bucket& bucket : buckets) {
    metadata.clear();
    CHANGEOVER_TRY(encode_bucket(specs, sizes, bucket, extensions, {}, metadata));
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
