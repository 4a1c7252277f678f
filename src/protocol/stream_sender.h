// The sending end of a stream: cuts a list of tensors into frames by the bucket rule (W4) and says,
// step by step, which bytes go out next. Reads no tensor and knows no road.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/tensor.h>

#include "protocol/stream_receiver.h"
#include "wire/bucket.h"
#include "wire/frame.h"

namespace changeover::protocol {

struct StreamPlan {
  WireExtensions extensions;  // those that the stream uses (rule W6)
  std::vector<wire::Bucket> buckets;
  std::vector<uint64_t> tensor_bytes;  // per tensor
  uint64_t payload_bytes_total = 0;
  uint64_t payload_bytes_max = 0;   // of one frame
  uint64_t metadata_bytes_max = 0;  // of one frame
};

// Sizes and bucket bounds of the stream; refuses what wire::plan_buckets() refuses.
Result<StreamPlan> plan_stream(std::span<const TensorSpec> specs, uint64_t bucket_bytes,
                               const WireExtensions& extensions = {});

class StreamSender {
 public:
  // `specs` must outlive the sender and be what `plan` was made of; so must `digests`, one per
  // tensor, which xxh3 needs.
  StreamSender(std::span<const TensorSpec> specs, StreamPlan plan, int64_t version,
               std::span<const Digest> digests = {});

  struct Step {
    StreamPart part = StreamPart::kHeader;
    // kHeader, kMetadata, and the zeros of kPayload that align a tensor: the bytes themselves,
    // valid until the next call of next().
    std::span<const std::byte> bytes;
    // kPayload without `bytes`: this tensor's bytes in C order from `first` on, `nbytes` of them
    // (never 0).
    size_t tensor = 0;
    uint64_t first = 0;
    uint64_t nbytes = 0;
  };
  // The next thing to send; nullopt after END's header. Tensors come in ascending order, each once,
  // the parts of one that is split each in a step of its own; zero-size tensors have no step (read
  // them by themselves where each must be read once).
  // A failure (metadata that cannot be written) ends the stream.
  Result<std::optional<Step>> next();

  // After the step that next() gave last: the frame is complete, flush what was sent.
  bool at_frame_end() const;
  const StreamPlan& plan() const { return plan_; }

 private:
  enum class State : uint8_t { kHeader, kMetadata, kPayload, kEnd, kDone };
  Status start_bucket();
  void next_place();

  std::span<const TensorSpec> specs_;
  StreamPlan plan_;
  int64_t version_ = 0;
  State state_ = State::kHeader;
  size_t bucket_ = 0;
  std::span<const Digest> digests_;
  std::optional<wire::BucketWalk> walk_;
  wire::Place place_;      // of the bucket's next bytes
  uint64_t position_ = 0;  // in the payload
  std::array<std::byte, wire::kHeaderBytes> header_bytes_{};
  std::string metadata_;
};

}  // namespace changeover::protocol
