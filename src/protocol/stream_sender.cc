#include "protocol/stream_sender.h"

#include <algorithm>
#include <utility>

#include "wire/header.h"
#include "wire/metadata.h"

namespace changeover::protocol {

namespace {

constexpr std::array<std::byte, wire::kAlignmentBytes> kZeros{};

}  // namespace

Result<StreamPlan> plan_stream(std::span<const TensorSpec> specs, uint64_t bucket_bytes,
                               const WireExtensions& extensions) {
  StreamPlan plan;
  plan.extensions = extensions;
  CHANGEOVER_TRY_ASSIGN(plan.buckets, wire::plan_buckets(specs, bucket_bytes, extensions));
  plan.tensor_bytes.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(spec.dtype, spec.shape));
    plan.tensor_bytes.push_back(static_cast<uint64_t>(bytes));
  }
  for (const wire::Bucket& bucket : plan.buckets) {
    plan.payload_bytes_total += bucket.payload_bytes;
    plan.payload_bytes_max = std::max(plan.payload_bytes_max, bucket.payload_bytes);
    plan.metadata_bytes_max = std::max(plan.metadata_bytes_max, bucket.metadata_bytes);
  }
  return plan;
}

StreamSender::StreamSender(std::span<const TensorSpec> specs, StreamPlan plan, int64_t version,
                           std::span<const Digest> digests)
    : specs_(specs), plan_(std::move(plan)), version_(version), digests_(digests) {
  if (plan_.buckets.empty()) {
    state_ = State::kEnd;
  }
}

Result<std::optional<StreamSender::Step>> StreamSender::next() {
  switch (state_) {
    case State::kHeader: {
      CHANGEOVER_TRY(start_bucket());
      state_ = State::kMetadata;
      return std::optional<Step>(Step{StreamPart::kHeader, header_bytes_});
    }
    case State::kMetadata: {
      state_ = State::kPayload;
      next_place();
      return std::optional<Step>(Step{StreamPart::kMetadata, std::as_bytes(std::span(metadata_))});
    }
    case State::kPayload: {
      if (place_.offset != position_) {
        const auto zeros = std::span(kZeros).first(place_.offset - position_);
        position_ = place_.offset;
        return std::optional<Step>(Step{StreamPart::kPayload, zeros});
      }
      const Step step{StreamPart::kPayload, {}, place_.tensor, place_.first, place_.nbytes};
      position_ += place_.nbytes;
      next_place();
      return std::optional<Step>(step);
    }
    case State::kEnd:
      header_bytes_ = wire::encode_header({wire::kEnd, 0, 0, version_});
      state_ = State::kDone;
      return std::optional<Step>(Step{StreamPart::kHeader, header_bytes_});
    case State::kDone:
      break;
  }
  return std::optional<Step>();
}

Status StreamSender::start_bucket() {
  const wire::Bucket& bucket = plan_.buckets[bucket_];
  metadata_.clear();
  if (Status status = wire::encode_bucket(specs_, plan_.tensor_bytes, bucket, plan_.extensions,
                                          digests_, metadata_);
      !status.ok()) {
    state_ = State::kDone;
    return status;
  }
  header_bytes_ = wire::encode_header({wire::kBucket, static_cast<int64_t>(metadata_.size()),
                                       static_cast<int64_t>(bucket.payload_bytes), version_});
  walk_.emplace(bucket, plan_.tensor_bytes, plan_.extensions.aligned);
  position_ = 0;
  return {};
}

// To the bucket's next tensor with bytes, or to the next bucket, or to END.
void StreamSender::next_place() {
  while (const auto place = walk_->next()) {
    if (place->nbytes > 0) {
      place_ = *place;
      return;
    }
  }
  state_ = ++bucket_ < plan_.buckets.size() ? State::kHeader : State::kEnd;
}

bool StreamSender::at_frame_end() const {
  return state_ == State::kDone || state_ == State::kEnd ||
         (state_ == State::kHeader && bucket_ != 0);
}

}  // namespace changeover::protocol
