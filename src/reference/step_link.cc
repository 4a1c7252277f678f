#include "reference/step_link.h"

#include <array>

#include <fmt/format.h>

#include "os/local_socket.h"

namespace changeover::reference {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr int kReadsPerTurn = 16;  // one peer's flood must not starve the others

uint32_t length_at(const std::byte* bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
  }
  return value;
}

}  // namespace

Status StepLink::read(std::vector<StepMessage>& messages) {
  std::array<std::byte, 4096> buffer;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    CHANGEOVER_TRY_ASSIGN(const std::optional<size_t> got, os::read_some(fd_, buffer));
    if (!got) {
      return {};
    }
    if (*got == 0) {
      return {Code::kUnavailable, "the peer closed the connection"};
    }
    arrived_.insert(arrived_.end(), buffer.begin(), buffer.begin() + static_cast<long>(*got));
    CHANGEOVER_TRY(parse(messages));
  }
  return {};
}

Status StepLink::parse(std::vector<StepMessage>& messages) {
  size_t at = 0;
  while (arrived_.size() - at >= kLengthBytes) {
    const uint32_t length = length_at(arrived_.data() + at);
    if (length > kStepMessageBytesMax) {
      return {Code::kCorrupt,
              fmt::format("a step message of {} bytes, at most {}", length, kStepMessageBytesMax)};
    }
    if (arrived_.size() - at - kLengthBytes < length) {
      break;
    }
    CHANGEOVER_TRY_ASSIGN(StepMessage message, decode_step_message(std::span(arrived_).subspan(
                                                   at + kLengthBytes, length)));
    messages.push_back(std::move(message));
    at += kLengthBytes + length;
  }
  arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<long>(at));
  return {};
}

Status StepLink::send(const StepMessage& message) {
  const std::vector<std::byte> bytes = encode_step_message(message);
  for (size_t i = 0; i < kLengthBytes; ++i) {
    unsent_.push_back(static_cast<std::byte>(bytes.size() >> (8 * i)));
  }
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  CHANGEOVER_TRY(flush());
  if (unsent_.size() > kUnsentBytesMax) {
    return {Code::kUnavailable, fmt::format("the peer reads nothing: {} bytes wait, at most {}",
                                            unsent_.size(), kUnsentBytesMax)};
  }
  return {};
}

Status StepLink::flush() {
  if (unsent_.empty()) {
    return {};
  }
  CHANGEOVER_TRY_ASSIGN(const size_t sent, os::write_some(fd_, unsent_));
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<long>(sent));
  return {};
}

}  // namespace changeover::reference
