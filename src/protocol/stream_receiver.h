// The receiving end of a stream: which part comes next, what is checked when, and how a failure is
// drained (rules R1-R3, R6, R7, W5, W7). Knows no road: the caller brings the bytes.
//
//   while (auto want = receiver.want()) {
//     auto run = road.receive(want->part, want->bytes, deadline);
//     run.ok() ? receiver.on_bytes(run.data) : receiver.on_road_failure(run.status());
//     ...release(run): a failure there is on_road_failure() too
//   }
//   receiver.result()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <changeover/status.h>

#include "update/transaction.h"
#include "wire/frame.h"
#include "wire/slices.h"

namespace changeover::protocol {

enum class StreamPart : uint8_t { kHeader, kMetadata, kPayload };

// Where decoded frames go: a transaction, a file, a checker.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual Status on_frame(std::span<const update::FrameTensor> tensors) = 0;
  virtual Status on_payload(uint64_t payload_offset, std::span<const std::byte> bytes) = 0;
  virtual Status on_end() = 0;
};

struct StreamReceiverOptions {
  std::optional<int64_t> version;  // the one expected (rule R6); none = the first frame's
  uint64_t payload_bytes_max = 0;  // the rank's ceiling; 0 = no payload is accepted
  uint64_t metadata_bytes_max = wire::kMetadataBytesMax;
  WireExtensions extensions = kEveryWireExtension;  // those that this rank has declared (rule W6)
};

class StreamReceiver {
 public:
  struct Want {
    StreamPart part = StreamPart::kHeader;
    uint64_t bytes = 0;  // still missing of this part, at least 1
  };

  // `sink` must outlive the receiver.
  StreamReceiver(const StreamReceiverOptions& options, FrameSink& sink);

  // What to receive next; nullopt once the stream is over (END, or out of step).
  std::optional<Want> want() const;
  // 1 .. want()->bytes bytes of want()->part, in order.
  void on_bytes(std::span<const std::byte> bytes);
  // The road ended the stream before END: out of step, nothing can be drained (rule R3).
  void on_road_failure(const Status& why);
  // The update failed for a reason outside the stream (a refused begin that must still drain, an
  // abort): from now on everything is received and nothing applied. The first failure stands.
  void fail(const Status& why);

  bool done() const { return done_; }
  // True if the stream ended without END: this rank has left it.
  bool out_of_step() const { return out_of_step_; }
  // REQUIRES: done(). Ok, or the first failure.
  const Status& result() const { return failure_; }
  const Status& failure() const { return failure_; }
  uint64_t payload_bytes() const { return payload_total_; }  // received so far, drained or not
  uint64_t frames() const { return frames_; }
  // "frame 3, payload, 4096 of 65536 bytes": what had arrived, for a deadline's message (rule R7).
  std::string position() const;

 private:
  void on_header();
  void on_metadata();
  void next_part();
  void leave(const Status& why);

  StreamReceiverOptions options_;
  FrameSink& sink_;
  StreamPart part_ = StreamPart::kHeader;
  std::array<std::byte, wire::kHeaderBytes> header_bytes_{};
  wire::Header header_;
  std::vector<std::byte> metadata_;
  std::vector<wire::Entry> entries_;
  std::vector<update::FrameTensor> tensors_;
  wire::SliceTracker slices_;
  uint64_t got_ = 0;  // of the current part
  uint64_t size_ = wire::kHeaderBytes;
  uint64_t payload_total_ = 0;
  uint64_t frames_ = 0;
  bool done_ = false;
  bool out_of_step_ = false;
  Status failure_;
};

}  // namespace changeover::protocol
