#include <algorithm>
#include <string_view>

#include "base/json_text.h"
#include "base/utf8.h"
#include "safetensors/header.h"
#include "tensor/spec.h"

namespace changeover::safetensors {

namespace {

Status invalid(std::string_view message) {
  return {Code::kInvalidArgument, message};
}

Status check_names(std::span<const TensorSpec> specs) {
  std::vector<std::string_view> names;
  names.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    CHANGEOVER_TRY(tensor::check_name(spec.name));
    if (spec.name == "__metadata__") {
      return invalid("a tensor may not be named \"__metadata__\"");
    }
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return invalid("tensor " + base::quoted(*twice) + ": the name comes twice");
  }
  return {};
}

Status append_tensor(std::string& json, const TensorSpec& spec, uint64_t& offset) {
  const auto dtype = safetensors_dtype_name(spec.dtype);
  if (!dtype) {
    return invalid("safetensors has no name for dtype " + std::string(dtype_name(spec.dtype)));
  }
  CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(spec.dtype, spec.shape));
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, static_cast<uint64_t>(bytes), &end) || end > INT64_MAX) {
    return invalid("the tensors' bytes together overflow 64 bits");
  }
  json += json.size() > 1 ? "," : "";
  base::append_json_string(json, spec.name);
  json += ":{\"dtype\":\"" + std::string(*dtype) +
          "\",\"shape\":" + tensor::describe_shape(spec.shape) + ",\"data_offsets\":[" +
          std::to_string(offset) + "," + std::to_string(end) + "]}";
  offset = end;
  return {};
}

Status append_metadata(std::string& json, const std::map<std::string, std::string>& metadata) {
  json += "\"__metadata__\":{";
  bool first = true;
  for (const auto& [key, value] : metadata) {
    if (!base::is_valid_utf8(key) || !base::is_valid_utf8(value) ||
        key.find('\0') != std::string::npos) {
      return invalid("metadata " + base::quoted(key) +
                     ": key and value must be UTF-8, the key "
                     "without NUL");
    }
    json += first ? "" : ",";
    first = false;
    base::append_json_string(json, key);
    json += ':';
    base::append_json_string(json, value);
  }
  json += '}';
  return {};
}

}  // namespace

Result<std::string> make_header(std::span<const TensorSpec> specs,
                                const std::map<std::string, std::string>& metadata,
                                const SafetensorsLimits& limits) {
  CHANGEOVER_TRY(check_names(specs));
  std::string json = "{";
  if (!metadata.empty()) {
    CHANGEOVER_TRY(append_metadata(json, metadata));
  }
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    if (const Status status = append_tensor(json, spec, offset); !status.ok()) {
      return status.with_context("tensor " + base::quoted(spec.name));
    }
    if (json.size() > limits.header_bytes_max) {
      break;
    }
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > limits.header_bytes_max) {
    return invalid("the header of " + std::to_string(specs.size()) + " tensors takes more than " +
                   std::to_string(limits.header_bytes_max) +
                   " bytes, which no reader takes: write shards");
  }
  std::string header;
  for (int i = 0; i < 8; ++i) {
    header += static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i));
  }
  return header + json;
}

}  // namespace changeover::safetensors
