#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace changeover::base {

namespace {

// Bytes of the code point that starts at `text` (at most `left`), or 0 if it is not well-formed.
size_t code_point_bytes(const unsigned char* text, size_t left) {
  const unsigned char first = text[0];
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < length) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  // The second byte's range rules out overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned char second = text[1];
  const bool bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                   (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return bad ? 0 : length;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = at + text.size();
  while (at != end) {
    uint64_t eight = 0;
    if (end - at >= 8 && (std::memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) {
      at += 8;
      continue;
    }
    const size_t length = code_point_bytes(at, static_cast<size_t>(end - at));
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

std::string quoted(std::string_view text, size_t bytes_max) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size() && i < bytes_max) {
    const auto* at = reinterpret_cast<const unsigned char*>(text.data()) + i;
    const size_t length = code_point_bytes(at, text.size() - i);
    if (length == 0 || *at < 0x20 || *at == 0x7f || *at == '"' || *at == '\\') {
      if (*at == '"' || *at == '\\') {
        out += {'\\', static_cast<char>(*at)};
      } else {
        out += {'\\', 'x', kDigits[*at >> 4], kDigits[*at & 15]};
      }
      ++i;
      continue;
    }
    out.append(text, i, length);
    i += length;
  }
  out += i < text.size() ? "\"..." : "\"";
  return out;
}

}  // namespace changeover::base
