#include "protocol/stream_sender.h"

#include <algorithm>
#include <utility>

#include "wire/header.h"
#include "wire/metadata.h"

namespace changeover::protocol {

Result<StreamPlan> plan_stream(std::span<const TensorSpec> specs, uint64_t bucket_bytes) {
  StreamPlan plan;
  CHANGEOVER_TRY_ASSIGN(plan.buckets, wire::plan_buckets(specs, bucket_bytes));
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

StreamSender::StreamSender(std::span<const TensorSpec> specs, StreamPlan plan, int64_t version)
    : specs_(specs), plan_(std::move(plan)), version_(version) {
  if (plan_.buckets.empty()) {
    state_ = State::kEnd;
  }
}

Result<std::optional<StreamSender::Step>> StreamSender::next() {
  switch (state_) {
    case State::kHeader: {
      CHANGEOVER_TRY(start_bucket());
      state_ = State::kMetadata;
      return std::optional<Step>(Step{StreamPart::kHeader, header_bytes_, 0, 0});
    }
    case State::kMetadata: {
      state_ = State::kPayload;
      skip_empty_tensors();
      return std::optional<Step>(
          Step{StreamPart::kMetadata, std::as_bytes(std::span(metadata_)), 0, 0});
    }
    case State::kPayload: {
      const size_t tensor = tensor_++;
      skip_empty_tensors();
      return std::optional<Step>(
          Step{StreamPart::kPayload, {}, tensor, plan_.tensor_bytes[tensor]});
    }
    case State::kEnd:
      header_bytes_ = wire::encode_header({wire::kEnd, 0, 0, version_});
      state_ = State::kDone;
      return std::optional<Step>(Step{StreamPart::kHeader, header_bytes_, 0, 0});
    case State::kDone:
      break;
  }
  return std::optional<Step>();
}

Status StreamSender::start_bucket() {
  const wire::Bucket& bucket = plan_.buckets[bucket_];
  metadata_.clear();
  if (Status status = wire::encode_metadata(specs_.subspan(bucket.first, bucket.count), metadata_);
      !status.ok()) {
    state_ = State::kDone;
    return status;
  }
  header_bytes_ = wire::encode_header({wire::kBucket, static_cast<int64_t>(metadata_.size()),
                                       static_cast<int64_t>(bucket.payload_bytes), version_});
  tensor_ = bucket.first;
  return {};
}

// To the bucket's next tensor with bytes, or to the next bucket, or to END.
void StreamSender::skip_empty_tensors() {
  const wire::Bucket& bucket = plan_.buckets[bucket_];
  const size_t end = bucket.first + bucket.count;
  while (tensor_ < end && plan_.tensor_bytes[tensor_] == 0) {
    ++tensor_;
  }
  if (tensor_ == end) {
    state_ = ++bucket_ < plan_.buckets.size() ? State::kHeader : State::kEnd;
  }
}

bool StreamSender::at_frame_end() const {
  return state_ == State::kDone || state_ == State::kEnd ||
         (state_ == State::kHeader && bucket_ != 0);
}

}  // namespace changeover::protocol
