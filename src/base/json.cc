#include "base/json.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "base/utf8.h"

// What the tape looks like (simdjson's doc/tape.md): each word has its type in the top byte and a
// 56-bit payload. 'r' at both ends; '{' '[' carry the index of the word after their scope's end in
// the low 32 bits; '"' an offset into the strings, each u32 length, bytes, NUL; 'l' 'u' 'd' are
// followed by a word with the number; 't' 'f' 'n' stand alone.
namespace changeover::base {

namespace {

constexpr uint64_t kPayloadMask = (uint64_t{1} << 56) - 1;

Status corrupt(std::string_view why) {
  return {Code::kCorrupt, "not valid JSON: " + std::string(why)};
}

std::string_view explain(simdjson::error_code error) {
  switch (error) {
    case simdjson::EMPTY:
      return "the text is empty";
    case simdjson::TAPE_ERROR:
      return "a comma, colon, bracket, key or value is missing or surplus";
    case simdjson::DEPTH_ERROR:
      return "it is nested too deep";
    case simdjson::STRING_ERROR:
      return "a string has an escape that JSON does not know, or half of a surrogate pair";
    case simdjson::T_ATOM_ERROR:
    case simdjson::F_ATOM_ERROR:
    case simdjson::N_ATOM_ERROR:
      return "a word other than true, false, null";
    case simdjson::NUMBER_ERROR:
      return "a number is malformed or out of range";
    case simdjson::UTF8_ERROR:
      return "it is not UTF-8";
    case simdjson::UNCLOSED_STRING:
      return "a string is not closed";
    case simdjson::UNESCAPED_CHARS:
      return "a string has a raw control character";
    default:
      return simdjson::error_message(error);
  }
}

std::string_view string_at(const uint8_t* strings, uint64_t word) {
  const uint8_t* at = strings + (word & kPayloadMask);
  uint32_t length = 0;
  std::memcpy(&length, at, sizeof(length));
  return {reinterpret_cast<const char*>(at + sizeof(length)), length};
}

Status check_keys(JsonValue object, std::vector<std::string_view>& keys) {
  keys.clear();
  keys.reserve(object.size());  // Exact: doubling would cost memory that the limit counts.
  for (const JsonMember member : object.members()) {
    if (member.key.find('\0') != std::string_view::npos) {
      return corrupt("key " + quoted(member.key) + " holds a NUL");
    }
    keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return corrupt("key " + quoted(*twice) + " stands twice in one object");
  }
  return {};
}

}  // namespace

std::string_view json_kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "a boolean";
    case JsonKind::kInteger:
      return "an integer";
    case JsonKind::kFloat:
      return "a number with a fraction or exponent";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "unknown";
}

JsonKind JsonValue::kind() const {
  switch (type()) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 'l':
    case 'u':
      return JsonKind::kInteger;
    case 'd':
      return JsonKind::kFloat;
    case 't':
    case 'f':
      return JsonKind::kBool;
    default:
      return JsonKind::kNull;
  }
}

std::optional<int64_t> JsonValue::integer() const {
  if (type() == 'l') {
    return std::bit_cast<int64_t>(tape_[at_ + 1]);
  }
  return std::nullopt;  // 'u' is written only for what does not fit an int64.
}

std::optional<double> JsonValue::number() const {
  switch (type()) {
    case 'l':
      return static_cast<double>(std::bit_cast<int64_t>(tape_[at_ + 1]));
    case 'u':
      return static_cast<double>(tape_[at_ + 1]);
    case 'd':
      return std::bit_cast<double>(tape_[at_ + 1]);
    default:
      return std::nullopt;
  }
}

std::optional<bool> JsonValue::boolean() const {
  return kind() == JsonKind::kBool ? std::optional(type() == 't') : std::nullopt;
}

std::optional<std::string_view> JsonValue::string() const {
  return type() == '"' ? std::optional(string_at(strings_, tape_[at_])) : std::nullopt;
}

uint64_t JsonValue::after() const {
  switch (type()) {
    case '{':
    case '[':
      return tape_[at_] & UINT32_MAX;
    case 'l':
    case 'u':
    case 'd':
      return at_ + 2;
    default:
      return at_ + 1;
  }
}

JsonElements JsonValue::elements() const {
  const bool any = type() == '[';
  return {child(at_ + 1), child(any ? after() - 1 : at_ + 1)};
}

JsonMembers JsonValue::members() const {
  const bool any = type() == '{';
  return {child(at_ + 1), child(any ? after() - 1 : at_ + 1)};
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  for (const JsonMember member : members()) {
    if (member.key == key) {
      return member.value;
    }
  }
  return std::nullopt;
}

size_t JsonValue::size() const {
  if (type() != '{' && type() != '[') {
    return 0;
  }
  constexpr uint64_t kSaturated = 0xffffff;
  if (const uint64_t count = (tape_[at_] >> 32) & kSaturated; count < kSaturated) {
    return count;
  }
  size_t count = 0;
  for (uint64_t at = at_ + 1; at < after() - 1; at = child(at).after()) {
    ++count;
  }
  return type() == '{' ? count / 2 : count;
}

JsonElements::Iterator& JsonElements::Iterator::operator++() {
  at_.at_ = at_.after();
  return *this;
}

JsonMember JsonMembers::Iterator::operator*() const {
  return {string_at(at_.strings_, at_.tape_[at_.at_]), at_.child(at_.at_ + 1)};
}

JsonMembers::Iterator& JsonMembers::Iterator::operator++() {
  at_.at_ = at_.child(at_.at_ + 1).after();
  return *this;
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return corrupt("it has " + std::to_string(text.size()) + " bytes, the limit is " +
                   std::to_string(limits.bytes_max));
  }
  if (text.starts_with("\xef\xbb\xbf")) {
    return corrupt("it starts with a byte order mark");
  }
  simdjson::dom::document parsed;
  {
    // The padded copy and the parser's index go away before anything else is allocated.
    const std::unique_ptr<char[]> padded(
        new (std::nothrow) char[text.size() + simdjson::SIMDJSON_PADDING]);
    simdjson::dom::parser parser(std::max<size_t>(text.size(), 64));
    if (!padded || parser.allocate(std::max<size_t>(text.size(), 64), limits.depth_max + 1)) {
      return Status(Code::kExhausted,
                    "no memory to read " + std::to_string(text.size()) + " bytes of JSON");
    }
    std::copy(text.begin(), text.end(), padded.get());
    std::memset(padded.get() + text.size(), 0, simdjson::SIMDJSON_PADDING);
    const simdjson::error_code error =
        parser.parse_into_document(parsed, padded.get(), text.size(), false).error();
    if (error == simdjson::MEMALLOC) {
      return Status(Code::kExhausted,
                    "no memory to read " + std::to_string(text.size()) + " bytes of JSON");
    }
    if (error) {
      return corrupt(explain(error));
    }
  }
  JsonDocument document;
  document.tape_ = std::move(parsed.tape);
  document.strings_ = std::move(parsed.string_buf);
  CHANGEOVER_TRY(document.check());
  return document;
}

Status JsonDocument::check() const {
  std::vector<std::string_view> keys;
  // In the tape's order every value comes after the scope that holds it: one loop sees all.
  const uint64_t end = (tape_[0] & kPayloadMask) - 1;
  for (uint64_t at = 1; at < end;) {
    const JsonValue value(tape_.get(), strings_.get(), at);
    if (value.is(JsonKind::kObject)) {
      CHANGEOVER_TRY(check_keys(value, keys));
    } else if (const auto text = value.string(); text && !is_valid_utf8(*text)) {
      return corrupt("string " + quoted(*text) + " has half of a surrogate pair");
    }
    const bool scope = value.is(JsonKind::kObject) || value.is(JsonKind::kArray);
    at = scope ? at + 1 : value.after();
  }
  return {};
}

JsonValue JsonDocument::root() const {
  return {tape_.get(), strings_.get(), 1};
}

}  // namespace changeover::base
