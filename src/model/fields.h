// Strict reading of objects: a key nobody knows, a missing key and a wrong kind are errors that
// name the place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/dtype.h>
#include <changeover/status.h>

#include "base/json.h"

namespace changeover::model {

class Fields {
 public:
  // kInvalidArgument unless `value` is an object with no other keys than these.
  static Result<Fields> make(base::JsonValue value, std::initializer_list<std::string_view> known);

  std::optional<base::JsonValue> find(std::string_view key) const { return object_.find(key); }
  Result<base::JsonValue> required(std::string_view key) const;
  Result<std::string_view> string(std::string_view key) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view absent) const;
  // Within min .. max.
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<int64_t> integer_or(std::string_view key, int64_t min, int64_t max, int64_t absent) const;
  Result<bool> boolean_or(std::string_view key, bool absent) const;
  // The wire's name; none where the key is absent.
  Result<std::optional<DType>> dtype(std::string_view key) const;
  // An array; at most `size_max` elements.
  Result<base::JsonValue> array(std::string_view key, size_t size_max) const;
  Result<std::vector<int64_t>> integers(std::string_view key, size_t size_max) const;
  Result<std::vector<std::string>> strings(std::string_view key, size_t size_max) const;

 private:
  explicit Fields(base::JsonValue object) : object_(object) {}
  base::JsonValue object_;
};

// kInvalidArgument: "KEY: should be WANTED, is an array".
Status wrong_kind(std::string_view key, std::string_view wanted, base::JsonValue value);

}  // namespace changeover::model
