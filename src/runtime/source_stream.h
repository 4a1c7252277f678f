// From a source to a road: the send loop, with the source's digest made on the way.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <changeover/publisher.h>
#include <changeover/source.h>
#include <changeover/types.h>

#include "base/digest.h"
#include "os/clock.h"
#include "protocol/stream_sender.h"
#include "tensor/version_digest.h"
#include "transport/transport.h"

namespace changeover::runtime {

// Rule U1: waits for the event that says the source may be read, or takes "now" for an answer.
// kInvalidArgument where the caller has said neither.
Status wait_until_ready(const PublishOptions& options);

// One update's hold on a source: its list is read once (rule U3), its lease ends with this object
// (rule U1).
class SourceLease {
 public:
  static Result<SourceLease> take(TensorSource& source);
  SourceLease(SourceLease&& other) noexcept;
  SourceLease& operator=(SourceLease&&) = delete;
  ~SourceLease();

  TensorSource& source() const { return *source_; }
  std::span<const TensorSpec> specs() const { return specs_; }

 private:
  SourceLease(TensorSource& source, std::span<const TensorSpec> specs)
      : source_(&source), specs_(specs) {}
  TensorSource* source_;
  std::span<const TensorSpec> specs_;
};

class SourceStream {
 public:
  struct Options {
    int64_t version = 0;
    bool digests = true;
    std::chrono::nanoseconds stall = std::chrono::seconds(10);
    // Between two pieces of work, at most some hundred KiB apart; not ok ends the stream.
    std::function<Status()> between;
    std::function<void(uint64_t sent, uint64_t total)> on_progress;
  };

  SourceStream(const SourceLease& lease, protocol::StreamPlan plan, const os::Clock& clock);

  // Sends all frames and END. Where digests are on, digest() is of the bytes as they were sent.
  Status send(transport::SendRoad& road, const Options& options);

  // Called between two pieces of a read, about a MiB apart; not ok ends it.
  using Between = std::function<Status()>;
  // Reads all of the source without sending (rule U2: a rank asked before anything is sent).
  Result<Digest> digest_only(const Between& between = {});

  // After send(): whether what was sent may be a mix of two states of the source, because its owner
  // says that it may change. Then check() reads it again; kAborted where it has changed (rule U1).
  bool wants_check() const { return digest_ && lease_.source().may_change(); }
  Status check(const Between& between);

  const std::optional<Digest>& digest() const { return digest_; }
  uint64_t payload_bytes() const { return sent_; }
  const protocol::StreamPlan& plan() const { return plan_; }

 private:
  Status send_payload(transport::SendRoad& road, const Options& options, size_t tensor);
  Status send_contiguous(transport::SendRoad& road, const Options& options,
                         std::span<const std::byte> bytes);
  Status read_empty_before(size_t tensor, bool digests);
  Status after(const Options& options, uint64_t bytes);
  Result<TensorView> read(size_t tensor);
  Instant deadline(const Options& options) const;

  const SourceLease& lease_;
  protocol::StreamPlan plan_;
  const os::Clock& clock_;
  tensor::VersionDigester digester_;
  base::Hasher hasher_;
  size_t next_tensor_ = 0;
  uint64_t sent_ = 0;
  std::optional<Digest> digest_;
};

}  // namespace changeover::runtime
