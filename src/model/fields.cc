#include "model/fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace changeover::model {

Status wrong_kind(std::string_view key, std::string_view wanted, base::JsonValue value) {
  return {Code::kInvalidArgument, fmt::format("{}: should be {}, is {}", base::quoted(key), wanted,
                                              base::json_kind_name(value.kind()))};
}

Result<Fields> Fields::make(base::JsonValue value, std::initializer_list<std::string_view> known) {
  if (!value.is(base::JsonKind::kObject)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("should be an object, is {}", base::json_kind_name(value.kind())));
  }
  for (const base::JsonMember member : value.members()) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("unknown key {}", base::quoted(member.key)));
    }
  }
  return Fields(value);
}

Result<base::JsonValue> Fields::required(std::string_view key) const {
  if (const auto value = find(key)) {
    return *value;
  }
  return Status(Code::kInvalidArgument, fmt::format("the key {} is missing", base::quoted(key)));
}

Result<std::string_view> Fields::string(std::string_view key) const {
  CHANGEOVER_TRY_ASSIGN(const base::JsonValue value, required(key));
  if (const auto text = value.string()) {
    return *text;
  }
  return wrong_kind(key, "a string", value);
}

Result<std::string_view> Fields::string_or(std::string_view key, std::string_view absent) const {
  return find(key) ? string(key) : Result<std::string_view>(absent);
}

Result<int64_t> Fields::integer(std::string_view key, int64_t min, int64_t max) const {
  CHANGEOVER_TRY_ASSIGN(const base::JsonValue value, required(key));
  const auto number = value.integer();
  if (!number) {
    return wrong_kind(key, "an integer", value);
  }
  if (*number < min || *number > max) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} is outside {} .. {}", base::quoted(key), *number, min, max));
  }
  return *number;
}

Result<int64_t> Fields::integer_or(std::string_view key, int64_t min, int64_t max,
                                   int64_t absent) const {
  return find(key) ? integer(key, min, max) : Result<int64_t>(absent);
}

Result<bool> Fields::boolean_or(std::string_view key, bool absent) const {
  const auto value = find(key);
  if (!value) {
    return absent;
  }
  if (const auto flag = value->boolean()) {
    return *flag;
  }
  return wrong_kind(key, "true or false", *value);
}

Result<std::optional<DType>> Fields::dtype(std::string_view key) const {
  if (!find(key)) {
    return std::optional<DType>();
  }
  CHANGEOVER_TRY_ASSIGN(const std::string_view name, string(key));
  const std::optional<DType> dtype = dtype_from_wire_name(name);
  if (!dtype) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: no dtype is called {}", base::quoted(key), base::quoted(name)));
  }
  return dtype;
}

Result<base::JsonValue> Fields::array(std::string_view key, size_t size_max) const {
  CHANGEOVER_TRY_ASSIGN(const base::JsonValue value, required(key));
  if (!value.is(base::JsonKind::kArray)) {
    return wrong_kind(key, "an array", value);
  }
  if (const size_t size = value.size(); size > size_max) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} elements, at most {}", base::quoted(key), size, size_max));
  }
  return value;
}

Result<std::vector<int64_t>> Fields::integers(std::string_view key, size_t size_max) const {
  CHANGEOVER_TRY_ASSIGN(const base::JsonValue list, array(key, size_max));
  std::vector<int64_t> numbers;
  for (const base::JsonValue element : list.elements()) {
    const auto number = element.integer();
    if (!number) {
      return wrong_kind(key, "an array of integers", element);
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<std::string>> Fields::strings(std::string_view key, size_t size_max) const {
  CHANGEOVER_TRY_ASSIGN(const base::JsonValue list, array(key, size_max));
  std::vector<std::string> texts;
  for (const base::JsonValue element : list.elements()) {
    const auto text = element.string();
    if (!text) {
      return wrong_kind(key, "an array of strings", element);
    }
    texts.emplace_back(*text);
  }
  return texts;
}

}  // namespace changeover::model
