#include "transport/faulty/faulty_road.h"

#include <algorithm>

#include <fmt/format.h>

namespace changeover::transport {

namespace {

constexpr uint64_t kScratchBytes = 64 << 10;

// SplitMix64: small, and the same on every machine.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::string FaultPlan::to_string() const {
  switch (kind) {
    case FaultKind::kNone:
      return "no fault";
    case FaultKind::kLosePeer:
      return fmt::format("lose peer {} at byte {}", peer, at_byte);
    case FaultKind::kStall:
      return fmt::format("stall at byte {}", at_byte);
    case FaultKind::kTruncate:
      return fmt::format("truncate at byte {}", at_byte);
    case FaultKind::kFlipBit:
      return fmt::format("flip bit {} at byte {}", bit, at_byte);
  }
  return "unknown fault";
}

FaultPlan fault_from_seed(uint64_t seed, uint64_t stream_bytes, uint32_t peers) {
  FaultPlan plan;
  plan.kind = static_cast<FaultKind>(1 + next_random(seed) % 4);
  plan.at_byte = next_random(seed) % std::max<uint64_t>(stream_bytes, 1);
  plan.peer = static_cast<uint32_t>(next_random(seed) % std::max<uint32_t>(peers, 1));
  plan.bit = static_cast<uint8_t>(next_random(seed) % 8);
  return plan;
}

FaultySendRoad::FaultySendRoad(std::unique_ptr<SendRoad> inner, FaultPlan plan,
                               const os::Clock& clock)
    : inner_(std::move(inner)), plan_(plan), clock_(clock) {
  if (plan.kind == FaultKind::kTruncate) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(kScratchBytes);
  }
}

Status FaultySendRoad::open_stream(std::span<const uint32_t> peers, uint64_t stream_id) {
  stream_bytes_ = 0;
  stalled_ = truncated_ = false;
  return inner_->open_stream(peers, stream_id);
}

bool FaultySendRoad::strikes_within(uint64_t bytes) const {
  return !struck_ && plan_.kind != FaultKind::kNone && plan_.at_byte >= stream_bytes_ &&
         plan_.at_byte - stream_bytes_ < bytes;
}

Status FaultySendRoad::stall(Instant deadline) const {
  CHANGEOVER_TRY(os::poll_until({}, clock_, deadline).status());
  return {Code::kDeadline, "planned fault: " + plan_.to_string()};
}

Result<std::span<std::byte>> FaultySendRoad::lend(Part part, uint64_t bytes, Instant deadline) {
  if (stalled_) {
    return stall(deadline);
  }
  if (truncated_) {
    lent_ = {scratch_.get(), std::min(bytes, kScratchBytes)};
    return lent_;
  }
  CHANGEOVER_TRY_ASSIGN(lent_, inner_->lend(part, bytes, deadline));
  lent_deadline_ = deadline;
  return lent_;
}

Status FaultySendRoad::commit(uint64_t bytes) {
  const uint64_t before = plan_.at_byte - stream_bytes_;  // meaningful when it strikes here
  const bool strikes = bytes <= lent_.size() && strikes_within(bytes);
  stream_bytes_ += bytes;
  if (truncated_) {
    return {};
  }
  if (!strikes) {
    return inner_->commit(bytes);
  }
  struck_ = true;
  switch (plan_.kind) {
    case FaultKind::kLosePeer:
      inner_->drop(plan_.peer, {Code::kUnavailable, "planned fault: " + plan_.to_string()});
      return inner_->commit(bytes);
    case FaultKind::kStall:
      stalled_ = true;
      CHANGEOVER_TRY(inner_->commit(before));
      return stall(lent_deadline_);
    case FaultKind::kTruncate:
      truncated_ = true;
      return inner_->commit(before);
    default:
      lent_[before] ^= static_cast<std::byte>(1u << plan_.bit);
      return inner_->commit(bytes);
  }
}

Status FaultySendRoad::send(Part part, std::span<const std::byte> bytes, Instant deadline) {
  if (stalled_) {
    return stall(deadline);
  }
  const bool strikes = strikes_within(bytes.size());
  const uint64_t before = plan_.at_byte - stream_bytes_;
  stream_bytes_ += bytes.size();
  if (truncated_) {
    return {};
  }
  if (!strikes) {
    return inner_->send(part, bytes, deadline);
  }
  struck_ = true;
  if (before > 0) {
    CHANGEOVER_TRY(inner_->send(part, bytes.first(before), deadline));
  }
  bytes = bytes.subspan(before);
  switch (plan_.kind) {
    case FaultKind::kLosePeer:
      inner_->drop(plan_.peer, {Code::kUnavailable, "planned fault: " + plan_.to_string()});
      break;
    case FaultKind::kStall:
      stalled_ = true;
      return stall(deadline);
    case FaultKind::kTruncate:
      truncated_ = true;
      return {};
    default: {
      const std::byte flipped = bytes[0] ^ static_cast<std::byte>(1u << plan_.bit);
      CHANGEOVER_TRY(inner_->send(part, {&flipped, 1}, deadline));
      bytes = bytes.subspan(1);
    }
  }
  return bytes.empty() ? Status() : inner_->send(part, bytes, deadline);
}

Status FaultySendRoad::flush(Instant deadline) {
  return stalled_ ? stall(deadline) : inner_->flush(deadline);
}

Result<std::unique_ptr<FaultyReceiveRoad>> FaultyReceiveRoad::create(
    std::unique_ptr<ReceiveRoad> inner, FaultPlan plan, const os::Clock& clock) {
  CHANGEOVER_TRY_ASSIGN(os::Doorbell bell, os::Doorbell::create());
  return std::unique_ptr<FaultyReceiveRoad>(
      new FaultyReceiveRoad(std::move(inner), plan, std::move(bell), clock));
}

FaultyReceiveRoad::FaultyReceiveRoad(std::unique_ptr<ReceiveRoad> inner, FaultPlan plan,
                                     os::Doorbell bell, const os::Clock& clock)
    : inner_(std::move(inner)), plan_(plan), bell_(std::move(bell)), clock_(clock) {}

Status FaultyReceiveRoad::open_stream(uint64_t stream_id) {
  stream_bytes_ = 0;
  stalled_ = false;
  return inner_->open_stream(stream_id);
}

// A run never crosses the byte where the fault strikes; that byte is a run of its own.
Result<Run> FaultyReceiveRoad::receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                                       Instant deadline) {
  const bool ahead = !struck_ && plan_.kind != FaultKind::kNone && plan_.at_byte >= stream_bytes_;
  if (stalled_ || (ahead && plan_.at_byte == stream_bytes_ && plan_.kind != FaultKind::kFlipBit)) {
    return strike(deadline);
  }
  const bool flips = ahead && plan_.at_byte == stream_bytes_;
  if (flips) {
    bytes_max = std::min<uint64_t>(bytes_max, 1);
    into = {};
  } else if (ahead) {
    bytes_max = std::min(bytes_max, plan_.at_byte - stream_bytes_);
  }
  CHANGEOVER_TRY_ASSIGN(inner_run_, inner_->receive(part, bytes_max, into, deadline));
  stream_bytes_ += inner_run_.bytes;
  Run run = inner_run_;
  if (flips) {
    struck_ = true;
    flipped_ = inner_run_.data[0] ^ static_cast<std::byte>(1u << plan_.bit);
    run.data = &flipped_;
  }
  return run;
}

Result<Run> FaultyReceiveRoad::strike(Instant deadline) {
  struck_ = true;
  const std::string text = "planned fault: " + plan_.to_string();
  if (plan_.kind != FaultKind::kStall) {
    inner_->close();
    return Status(Code::kUnavailable, text);
  }
  stalled_ = true;
  const Status wait = os::wait_readable(bell_.fd(), clock_, deadline, text);
  if (wait.ok() && bell_.clear()) {
    return Status(Code::kTryLater, "woken");
  }
  return wait;
}

Status FaultyReceiveRoad::release(const Run&) {
  return inner_->release(inner_run_);
}

void FaultyReceiveRoad::wake() {
  bell_.ring();
  inner_->wake();
}

}  // namespace changeover::transport
