// Wraps any road and breaks it once, at a byte chosen by a seed: for tests that must replay.
#pragma once

#include <atomic>
#include <memory>

#include "os/clock.h"
#include "os/poll.h"
#include "transport/transport.h"

namespace changeover::transport {

enum class FaultKind : uint8_t {
  kNone,
  kLosePeer,  // sender: drops `peer`; receiver: leaves
  kStall,     // nothing moves any more until the call's deadline
  kTruncate,  // sender: says yes and passes nothing on; receiver: the stream ends
  kFlipBit,   // one bit of that byte changes
};

struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  uint64_t at_byte = 0;           // of all bytes of a stream, from 0; the fault strikes once
  uint32_t peer = 0;              // kLosePeer of a sender
  uint8_t bit = 0;                // kFlipBit: 0 .. 7
  std::string to_string() const;  // for messages: "flip bit 3 at byte 4711"
};

// Any fault but kNone, at a byte below stream_bytes, of a peer below `peers`. The same seed gives
// the same plan on every machine.
FaultPlan fault_from_seed(uint64_t seed, uint64_t stream_bytes, uint32_t peers);

class FaultySendRoad final : public SendRoad {
 public:
  FaultySendRoad(std::unique_ptr<SendRoad> inner, FaultPlan plan, const os::Clock& clock);
  SendRoad& inner() { return *inner_; }

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  Status open_stream(std::span<const uint32_t> peers, uint64_t stream_id) override;
  Result<std::span<std::byte>> lend(Part part, uint64_t bytes, Instant deadline) override;
  Status commit(uint64_t bytes) override;
  Status send(Part part, std::span<const std::byte> bytes, Instant deadline) override;
  Status flush(Instant deadline) override;
  void drop(uint32_t peer, const Status& why) override { inner_->drop(peer, why); }
  std::vector<PeerFailure> take_failures() override { return inner_->take_failures(); }

 private:
  bool strikes_within(uint64_t bytes) const;
  Status stall(Instant deadline) const;

  std::unique_ptr<SendRoad> inner_;
  const FaultPlan plan_;
  const os::Clock& clock_;
  bool struck_ = false;
  bool stalled_ = false;    // until the next stream
  bool truncated_ = false;  // until the next stream
  uint64_t stream_bytes_ = 0;
  std::span<std::byte> lent_;
  Instant lent_deadline_;
  std::unique_ptr<std::byte[]> scratch_;  // lent out once the stream is truncated
};

class FaultyReceiveRoad final : public ReceiveRoad {
 public:
  static Result<std::unique_ptr<FaultyReceiveRoad>> create(std::unique_ptr<ReceiveRoad> inner,
                                                           FaultPlan plan, const os::Clock& clock);
  ReceiveRoad& inner() { return *inner_; }

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  Status open_stream(uint64_t stream_id) override;
  Result<Run> receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                      Instant deadline) override;
  Status release(const Run& run) override;
  void wake() override;
  void close() override { inner_->close(); }

 private:
  FaultyReceiveRoad(std::unique_ptr<ReceiveRoad> inner, FaultPlan plan, os::Doorbell bell,
                    const os::Clock& clock);
  Result<Run> strike(Instant deadline);

  std::unique_ptr<ReceiveRoad> inner_;
  const FaultPlan plan_;
  os::Doorbell bell_;  // ends a stall
  const os::Clock& clock_;
  bool struck_ = false;
  bool stalled_ = false;  // until the next stream
  uint64_t stream_bytes_ = 0;
  std::byte flipped_{};  // the changed byte, a run of its own
  Run inner_run_;        // what it stands for
};

}  // namespace changeover::transport
