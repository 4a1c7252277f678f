#include "reference/step_message.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace changeover::reference {
namespace {

constexpr uint32_t kMagic = 0x50545343;  // "CSTP"
constexpr uint16_t kFormat = 2;

// Flags.
constexpr uint8_t kYes = 1;
constexpr uint8_t kHasVersion = 2;
constexpr uint8_t kHasNext = 4;

// Appends integers byte by byte, so that the layout does not depend on the machine.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}
  template <typename T>
  void integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void incarnation(const Incarnation& value) {
    for (const uint8_t byte : value.bytes) {
      out_.push_back(static_cast<std::byte>(byte));
    }
  }
  void string(std::string_view text, size_t bytes_max) {
    const size_t size = std::min(text.size(), bytes_max);
    integer(static_cast<uint16_t>(size));
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    out_.insert(out_.end(), data, data + size);
  }

 private:
  std::vector<std::byte>& out_;
};

// Reads them back; after the first shortfall everything reads as 0 and failed() names the field.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T integer(const char* field) {
    uint64_t value = 0;
    if (!take(sizeof(T), field)) {
      return T{};
    }
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<uint64_t>(bytes_[at_ - sizeof(T) + i]) << (8 * i);
    }
    return static_cast<T>(value);
  }
  Incarnation incarnation(const char* field) {
    Incarnation value;
    if (take(value.bytes.size(), field)) {
      std::memcpy(value.bytes.data(), bytes_.data() + at_ - value.bytes.size(), value.bytes.size());
    }
    return value;
  }
  std::string string(size_t bytes_max, const char* field) {
    const auto size = integer<uint16_t>(field);
    if (size > bytes_max) {
      fail(fmt::format("{} of {} bytes, at most {}", field, size, bytes_max));
      return {};
    }
    if (!take(size, field)) {
      return {};
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + at_ - size, size};
  }
  void fail(std::string why) {
    if (why_.empty()) {
      why_ = std::move(why);
    }
  }
  size_t left() const { return bytes_.size() - at_; }
  const std::string& failed() const { return why_; }

 private:
  bool take(size_t size, const char* field) {
    if (!why_.empty()) {
      return false;
    }
    if (left() < size) {
      fail(fmt::format("ends within {}", field));
      return false;
    }
    at_ += size;
    return true;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  std::string why_;
};

}  // namespace

std::string_view step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kHello:
      return "hello";
    case StepKind::kWelcome:
      return "welcome";
    case StepKind::kRefuse:
      return "refuse";
    case StepKind::kPrepare:
      return "prepare";
    case StepKind::kAnswer:
      return "answer";
    case StepKind::kRun:
      return "run";
    case StepKind::kDone:
      return "done";
    case StepKind::kCancel:
      return "cancel";
    case StepKind::kClose:
      return "close";
    case StepKind::kReady:
      return "ready";
    case StepKind::kChange:
      return "change";
  }
  return "unknown";
}

std::vector<std::byte> encode_step_message(const StepMessage& message) {
  std::vector<std::byte> out;
  out.reserve(128);
  Writer writer(out);
  writer.integer(kMagic);
  writer.integer(kFormat);
  writer.integer(static_cast<uint8_t>(message.kind));
  writer.integer(static_cast<uint8_t>((message.yes ? kYes : 0) |
                                      (message.version ? kHasVersion : 0) |
                                      (message.next ? kHasNext : 0)));
  writer.incarnation(message.sender);
  writer.integer(message.step);
  writer.integer(message.last_run);
  writer.integer(message.checksum);
  writer.integer(message.rank);
  writer.integer(message.engine_size);
  for (const auto& version : {message.version, message.next}) {
    writer.integer(version ? version->epoch : int64_t{0});
    writer.integer(version ? version->version : int64_t{0});
  }
  writer.string(message.job, kStepNameBytesMax);
  writer.string(message.engine, kStepNameBytesMax);
  writer.string(message.text, kStepTextBytesMax);
  return out;
}

Result<StepMessage> decode_step_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (bytes.size() > kStepMessageBytesMax) {
    return Status(Code::kCorrupt, fmt::format("step message of {} bytes, at most {}", bytes.size(),
                                              kStepMessageBytesMax));
  }
  StepMessage message;
  if (reader.integer<uint32_t>("magic") != kMagic) {
    reader.fail("does not begin as a step message");
  }
  if (const auto format = reader.integer<uint16_t>("format"); format != kFormat) {
    reader.fail(fmt::format("format {}, this side speaks {}", format, kFormat));
  }
  const auto kind = reader.integer<uint8_t>("kind");
  if (kind < static_cast<uint8_t>(StepKind::kHello) ||
      kind > static_cast<uint8_t>(StepKind::kChange)) {
    reader.fail(fmt::format("unknown kind {}", kind));
  }
  message.kind = static_cast<StepKind>(kind);
  const auto flags = reader.integer<uint8_t>("flags");
  if (flags > (kYes | kHasVersion | kHasNext)) {
    reader.fail(fmt::format("unknown flags {}", flags));
  }
  message.yes = (flags & kYes) != 0;
  message.sender = reader.incarnation("incarnation");
  message.step = reader.integer<uint64_t>("step");
  message.last_run = reader.integer<uint64_t>("last_run");
  message.checksum = reader.integer<uint64_t>("checksum");
  message.rank = reader.integer<int32_t>("rank");
  message.engine_size = reader.integer<int32_t>("engine_size");
  const auto read_version = [&](uint8_t flag) -> std::optional<VersionStamp> {
    const VersionStamp version{reader.integer<int64_t>("epoch"),
                               reader.integer<int64_t>("version")};
    if (version.epoch < 0 || version.version < 0) {
      reader.fail("negative version or epoch");
    }
    return (flags & flag) != 0 ? std::optional(version) : std::nullopt;
  };
  message.version = read_version(kHasVersion);
  message.next = read_version(kHasNext);
  if (message.step > kStepNumberMax || message.last_run > kStepNumberMax) {
    reader.fail(fmt::format("step number over {}", kStepNumberMax));
  }
  message.job = reader.string(kStepNameBytesMax, "job");
  message.engine = reader.string(kStepNameBytesMax, "engine");
  message.text = reader.string(kStepTextBytesMax, "text");
  if (reader.failed().empty() && reader.left() != 0) {
    reader.fail(fmt::format("{} bytes left over", reader.left()));
  }
  if (!reader.failed().empty()) {
    return Status(Code::kCorrupt, "step message: " + reader.failed());
  }
  return message;
}

}  // namespace changeover::reference
