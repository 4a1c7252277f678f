#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "safetensors/header.h"
#include "tensor/spec.h"

namespace changeover::safetensors {

namespace {

using base::JsonKind;
using base::JsonValue;

constexpr size_t kLengthBytes = 8;

Status corrupt(std::string_view message) {
  return {Code::kCorrupt, message};
}

std::string kind_of(JsonValue value) {
  return std::string(base::json_kind_name(value.kind()));
}

// What else a file may be that was taken for safetensors; empty if its start says nothing.
std::string_view other_format(std::string_view start) {
  if (start.starts_with("PK\x03\x04")) {
    return "this is a zip archive, probably a torch .pt or .bin checkpoint";
  }
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 1 && start[1] <= 5) {
    return "this is a Python pickle, probably an old torch checkpoint";
  }
  if (start.starts_with("GGUF")) {
    return "this is a GGUF file";
  }
  if (start.starts_with("version https://git-lfs")) {
    return "this is a Git LFS pointer, the file itself was not fetched";
  }
  if (start.starts_with("\x89HDF\r\n")) {
    return "this is an HDF5 file";
  }
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<html") || start.starts_with("HTTP/")) {
    return "this is a web page, probably an error page of a download";
  }
  return "";
}

// The JSON text of the header.
Result<std::string_view> header_text(std::span<const std::byte> file, uint64_t bytes_max) {
  const std::string_view all(reinterpret_cast<const char*>(file.data()), file.size());
  if (all.size() < kLengthBytes) {
    return corrupt("the file has " + std::to_string(all.size()) +
                   " bytes, the header's length alone takes 8");
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<uint8_t>(all[i]);
  }
  const uint64_t left = all.size() - kLengthBytes;
  // Only where the length makes no sense: a sound file may start with any of these bytes.
  if (length > bytes_max || length > left) {
    if (const std::string_view other = other_format(all); !other.empty()) {
      return corrupt("not safetensors: " + std::string(other));
    }
  }
  if (length > bytes_max) {
    return corrupt("the header's length is " + std::to_string(length) + " bytes, at most " +
                   std::to_string(bytes_max) + " are allowed");
  }
  if (length > left) {
    return corrupt("the header's length is " + std::to_string(length) +
                   " bytes, the file has only " + std::to_string(left) + " after it");
  }
  if (length == 0 || all[kLengthBytes] != '{') {
    return corrupt("the header does not start with '{'");
  }
  return all.substr(kLengthBytes, length);
}

Status read_metadata(JsonValue value, std::map<std::string, std::string>& metadata) {
  if (!value.is(JsonKind::kObject)) {
    return corrupt("__metadata__ is " + kind_of(value) + ", it must be an object of strings");
  }
  for (const base::JsonMember member : value.members()) {
    const std::optional<std::string_view> text = member.value.string();
    if (!text) {
      return corrupt("__metadata__ " + base::quoted(member.key) + " is " + kind_of(member.value) +
                     ", it must be a string");
    }
    metadata.emplace(member.key, *text);
  }
  return {};
}

Status read_integer(JsonValue value, const std::string& what, int64_t& out) {
  if (!value.is(JsonKind::kInteger)) {
    return corrupt(what + " is " + kind_of(value) + ", it must be an integer");
  }
  const std::optional<int64_t> number = value.integer();
  if (!number) {
    return corrupt(what + " does not fit 64 bits");
  }
  if (*number < 0) {
    return corrupt(what + " is " + std::to_string(*number) + ", it may not be negative");
  }
  out = *number;
  return {};
}

Status read_shape(std::optional<JsonValue> value, std::vector<int64_t>& shape) {
  if (!value || !value->is(JsonKind::kArray)) {
    return corrupt(value ? "its shape is " + kind_of(*value) + ", it must be an array"
                         : "it has no shape");
  }
  if (const size_t dimensions = value->size(); dimensions > kTensorDimsMax) {
    return corrupt("its shape has " + std::to_string(dimensions) + " dimensions, at most " +
                   std::to_string(kTensorDimsMax) + " are allowed");
  }
  for (const JsonValue dimension : value->elements()) {
    const std::string which = "dimension " + std::to_string(shape.size());
    CHANGEOVER_TRY(read_integer(dimension, which, shape.emplace_back()));
  }
  return {};
}

// Positions come out as given: counted from the start of the data.
Status read_offsets(std::optional<JsonValue> value, Tensor& tensor) {
  if (!value || !value->is(JsonKind::kArray) || value->size() != 2) {
    return corrupt("its data_offsets must be an array of two integers");
  }
  int64_t bounds[2];
  int64_t* bound = bounds;
  for (const JsonValue offset : value->elements()) {
    CHANGEOVER_TRY(read_integer(offset, "a data offset", *bound++));
  }
  if (bounds[0] > bounds[1]) {
    return corrupt("its data_offsets [" + std::to_string(bounds[0]) + "," +
                   std::to_string(bounds[1]) + "] end before they begin");
  }
  tensor.position = static_cast<uint64_t>(bounds[0]);
  tensor.bytes = static_cast<uint64_t>(bounds[1] - bounds[0]);
  return {};
}

Status read_tensor(JsonValue value, Tensor& tensor) {
  if (!value.is(JsonKind::kObject)) {
    return corrupt("its entry is " + kind_of(value) + ", it must be an object");
  }
  const std::optional<JsonValue> dtype = value.find("dtype");
  if (!dtype || !dtype->string()) {
    return corrupt("its dtype must be a string");
  }
  const std::optional<DType> known = dtype_from_safetensors_name(*dtype->string());
  if (!known) {
    return corrupt("its dtype " + base::quoted(*dtype->string()) + " is unknown");
  }
  tensor.spec.dtype = *known;
  CHANGEOVER_TRY(read_shape(value.find("shape"), tensor.spec.shape));
  CHANGEOVER_TRY(read_offsets(value.find("data_offsets"), tensor));
  const Result<int64_t> bytes = byte_count(tensor.spec.dtype, tensor.spec.shape);
  if (!bytes.ok()) {
    return corrupt(bytes.status().message());
  }
  if (tensor.bytes != static_cast<uint64_t>(*bytes)) {
    return corrupt("its data_offsets span " + std::to_string(tensor.bytes) + " bytes, but " +
                   tensor::describe(tensor.spec.dtype, tensor.spec.shape) + " has " +
                   std::to_string(*bytes));
  }
  return {};
}

// Sorts into data order and checks that nothing overlaps, is left out, or lies outside.
Status check_layout(std::vector<Tensor>& tensors, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.position, a.bytes) < std::pair(b.position, b.bytes);
  });
  uint64_t covered = 0;
  for (const Tensor& tensor : tensors) {
    const std::string name = "tensor " + base::quoted(tensor.spec.name);
    if (tensor.position < covered) {
      return corrupt(name + ": its data from offset " + std::to_string(tensor.position) +
                     " overlaps the tensor before it, which ends at " + std::to_string(covered));
    }
    if (tensor.position > covered) {
      return corrupt(name + ": a gap of " + std::to_string(tensor.position - covered) +
                     " bytes before its data at offset " + std::to_string(tensor.position));
    }
    covered = tensor.position + tensor.bytes;
    if (covered > data_bytes) {
      return corrupt(name + ": its data ends at " + std::to_string(covered) +
                     ", the file holds only " + std::to_string(data_bytes) +
                     " bytes of data; it is cut off");
    }
  }
  if (covered < data_bytes) {
    return corrupt(std::to_string(data_bytes - covered) +
                   " bytes are left over after the last tensor");
  }
  return {};
}

}  // namespace

Result<Header> parse_header(std::span<const std::byte> file, const SafetensorsLimits& limits) {
  CHANGEOVER_TRY_ASSIGN(const std::string_view text, header_text(file, limits.header_bytes_max));
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(text, {.bytes_max = limits.header_bytes_max});
  if (!document.ok()) {
    return document.status().with_context("the header");
  }
  Header header;
  for (const base::JsonMember member : document->root().members()) {
    if (member.key == "__metadata__") {
      CHANGEOVER_TRY(read_metadata(member.value, header.metadata));
      continue;
    }
    if (const Status status = tensor::check_name(member.key); !status.ok()) {
      return corrupt(status.message());
    }
    Tensor tensor;
    tensor.spec.name = member.key;
    if (const Status status = read_tensor(member.value, tensor); !status.ok()) {
      return status.with_context("tensor " + base::quoted(member.key));
    }
    header.tensors.push_back(std::move(tensor));
  }
  const uint64_t data_begin = kLengthBytes + text.size();
  CHANGEOVER_TRY(check_layout(header.tensors, file.size() - data_begin));
  for (Tensor& tensor : header.tensors) {
    tensor.position += data_begin;
  }
  return header;
}

}  // namespace changeover::safetensors
