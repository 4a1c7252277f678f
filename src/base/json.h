// Strict reading of JSON that comes from a peer or a file.
//
// Accepted is RFC 8259 and nothing else: no trailing data, no comments, no byte order mark, valid
// UTF-8 (also after unescaping: a lone surrogate is refused). On top of it: no key twice in one
// object (compared unescaped), no NUL in a key, integers that are integer tokens. Memory while
// parsing is at most 14 times the text, held in the document at most 10 times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <changeover/status.h>

namespace changeover::base {

enum class JsonKind : uint8_t { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };
std::string_view json_kind_name(JsonKind kind);  // For messages: "an array", "null".

class JsonElements;
class JsonMembers;

// A value inside a JsonDocument, which must outlive it. Three words; copy it freely.
class JsonValue {
 public:
  JsonValue() = default;  // Assign before use.

  JsonKind kind() const;
  bool is(JsonKind wanted) const { return kind() == wanted; }

  // A JSON integer token (no fraction, no exponent) that fits; else none. 1.0 is not an integer.
  std::optional<int64_t> integer() const;
  // Of an integer or a float; none for other kinds.
  std::optional<double> number() const;
  std::optional<bool> boolean() const;
  // Unescaped, valid UTF-8; may hold NUL. Valid while the document lives.
  std::optional<std::string_view> string() const;

  // Elements of an array or members of an object in the document's order; nothing for other kinds.
  JsonElements elements() const;
  JsonMembers members() const;
  // The member with this key; none if there is none or this is no object. Linear.
  std::optional<JsonValue> find(std::string_view key) const;
  // Number of elements or members. Linear.
  size_t size() const;

 private:
  friend class JsonDocument;
  friend class JsonElements;
  friend class JsonMembers;
  JsonValue(const uint64_t* tape, const uint8_t* strings, uint64_t at)
      : tape_(tape), strings_(strings), at_(at) {}
  char type() const { return static_cast<char>(tape_[at_] >> 56); }
  JsonValue child(uint64_t at) const { return {tape_, strings_, at}; }
  uint64_t after() const;  // Where the next value starts.

  const uint64_t* tape_ = nullptr;
  const uint8_t* strings_ = nullptr;
  uint64_t at_ = 0;
};

struct JsonMember {
  std::string_view key;
  JsonValue value;
};

class JsonElements {
 public:
  class Iterator {
   public:
    explicit Iterator(JsonValue at) : at_(at) {}
    JsonValue operator*() const { return at_; }
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return at_.at_ != other.at_.at_; }

   private:
    JsonValue at_;
  };
  Iterator begin() const { return Iterator(first_); }
  Iterator end() const { return Iterator(last_); }

 private:
  friend class JsonValue;
  JsonElements(JsonValue first, JsonValue last) : first_(first), last_(last) {}
  JsonValue first_;
  JsonValue last_;
};

class JsonMembers {
 public:
  class Iterator {
   public:
    explicit Iterator(JsonValue at) : at_(at) {}
    JsonMember operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return at_.at_ != other.at_.at_; }

   private:
    JsonValue at_;  // The key; its value comes next.
  };
  Iterator begin() const { return Iterator(first_); }
  Iterator end() const { return Iterator(last_); }

 private:
  friend class JsonValue;
  JsonMembers(JsonValue first, JsonValue last) : first_(first), last_(last) {}
  JsonValue first_;
  JsonValue last_;
};

struct JsonLimits {
  uint64_t bytes_max = 64ull << 20;
  uint32_t depth_max = 64;  // Arrays and objects inside each other, an empty innermost one aside.
};

// A parsed text. Movable; values point into it and stay valid over a move.
class JsonDocument {
 public:
  // kCorrupt says what is wrong; kExhausted when memory for it is refused. The text may go away
  // afterwards.
  static Result<JsonDocument> parse(std::string_view text, const JsonLimits& limits = {});

  JsonValue root() const;

 private:
  JsonDocument() = default;
  Status check() const;
  // simdjson's tape: one word per token with its type in the top byte, numbers in a second word.
  std::unique_ptr<uint64_t[]> tape_;
  std::unique_ptr<uint8_t[]> strings_;
};

}  // namespace changeover::base
