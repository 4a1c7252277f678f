#include <span>

#include <changeover/types.h>

namespace changeover {

namespace {

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The value of a lower-case hex digit, or -1.
int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string Digest::to_text() const {
  return to_hex(bytes);
}

Result<Digest> Digest::parse(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.bytes.size()) {
    return Status(Code::kInvalidArgument, "a digest is 32 lower-case hex digits, this has " +
                                              std::to_string(text.size()) + " characters");
  }
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Status(Code::kInvalidArgument, "a digest is 32 lower-case hex digits, character " +
                                                std::to_string(2 * i + (high < 0 ? 0 : 1)) +
                                                " is none");
    }
    digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

std::string Incarnation::to_text() const {
  return to_hex(bytes);
}

std::string UpdateId::to_text() const {
  return coordinator.to_text().substr(0, 8) + "/" + std::to_string(counter);
}

std::string RankName::to_text() const {
  return engine + "/" + std::to_string(rank);
}

std::string_view mode_name(Mode mode) {
  switch (mode) {
    case Mode::kInPlace:
      return "in_place";
    case Mode::kJournal:
      return "journal";
    case Mode::kStaged:
      return "staged";
    case Mode::kSwap:
      return "swap";
  }
  return "unknown";
}

Result<Mode> parse_mode(std::string_view text) {
  for (const Mode mode : {Mode::kInPlace, Mode::kJournal, Mode::kStaged, Mode::kSwap}) {
    if (text == mode_name(mode)) {
      return mode;
    }
  }
  return Status(Code::kInvalidArgument, "unknown mode \"" + std::string(text) +
                                            "\": use in_place, journal, staged or swap");
}

}  // namespace changeover
