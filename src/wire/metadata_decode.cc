#include <algorithm>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "base/utf8.h"
#include "tensor/spec.h"
#include "wire/metadata.h"
#include "wire/metadata_canonical.h"

namespace changeover::wire {

namespace {

using base::JsonKind;
using base::JsonValue;

Status corrupt(std::string_view message) {
  return {Code::kCorrupt, message};
}

// A rule that the shared checks found broken, said of received bytes.
Status corrupt(const Status& status) {
  return {Code::kCorrupt, status.message()};
}

struct Fields {
  std::optional<JsonValue> name;
  std::optional<JsonValue> shape;
  std::optional<JsonValue> dtype;
  std::optional<JsonValue> offset;
  std::optional<JsonValue> nbytes;
};

Fields find_fields(JsonValue object) {
  Fields fields;
  for (const base::JsonMember member : object.members()) {
    if (member.key == "name") {
      fields.name = member.value;
    } else if (member.key == "shape") {
      fields.shape = member.value;
    } else if (member.key == "dtype") {
      fields.dtype = member.value;
    } else if (member.key == "offset") {
      fields.offset = member.value;
    } else if (member.key == "nbytes") {
      fields.nbytes = member.value;
    }
  }
  return fields;
}

Status check_kind(const std::optional<JsonValue>& value, std::string_view key, JsonKind wanted) {
  if (!value) {
    return corrupt("the key " + base::quoted(key) + " is missing");
  }
  if (!value->is(wanted)) {
    return corrupt("its " + std::string(key) + " is " +
                   std::string(base::json_kind_name(value->kind())) + ", it must be " +
                   std::string(base::json_kind_name(wanted)));
  }
  return {};
}

Result<uint64_t> read_size(const std::optional<JsonValue>& value, std::string_view key) {
  CHANGEOVER_TRY(check_kind(value, key, JsonKind::kInteger));
  const std::optional<int64_t> number = value->integer();
  if (!number) {
    return corrupt("its " + std::string(key) + " does not fit 64 bits (W7)");
  }
  if (*number < 0) {
    return corrupt("its " + std::string(key) + " is " + std::to_string(*number) +
                   ", it may not be negative (W7)");
  }
  return static_cast<uint64_t>(*number);
}

Status read_shape(const std::optional<JsonValue>& value, std::vector<int64_t>& shape) {
  CHANGEOVER_TRY(check_kind(value, "shape", JsonKind::kArray));
  const size_t dimensions = value->size();
  if (dimensions > kTensorDimsMax) {
    return corrupt("its shape has " + std::to_string(dimensions) + " dimensions, at most " +
                   std::to_string(kTensorDimsMax) + " are allowed (W7)");
  }
  shape.reserve(dimensions);
  for (const JsonValue dimension : value->elements()) {
    const std::optional<int64_t> number = dimension.integer();
    const std::string which = "dimension " + std::to_string(shape.size());
    if (!dimension.is(JsonKind::kInteger)) {
      return corrupt(which + " is " + std::string(base::json_kind_name(dimension.kind())) +
                     ", it must be an integer (W7)");
    }
    if (!number) {
      return corrupt(which + " does not fit 64 bits (W7)");
    }
    shape.push_back(*number);
  }
  return {};
}

// Everything of an entry but its name, which messages carry already.
Status read_tensor(const Fields& fields, uint64_t payload_bytes, Entry& entry) {
  CHANGEOVER_TRY(read_shape(fields.shape, entry.spec.shape));
  CHANGEOVER_TRY(check_kind(fields.dtype, "dtype", JsonKind::kString));
  const std::optional<DType> dtype = dtype_from_wire_name(*fields.dtype->string());
  if (!dtype) {
    return corrupt("its dtype " + base::quoted(*fields.dtype->string()) + " is unknown (W2, W7)");
  }
  entry.spec.dtype = *dtype;
  CHANGEOVER_TRY_ASSIGN(entry.offset, read_size(fields.offset, "offset"));
  CHANGEOVER_TRY_ASSIGN(entry.nbytes, read_size(fields.nbytes, "nbytes"));
  const Result<int64_t> bytes = byte_count(entry.spec.dtype, entry.spec.shape);
  if (!bytes.ok()) {
    return corrupt(bytes.status());
  }
  if (entry.nbytes != static_cast<uint64_t>(*bytes)) {
    return corrupt("its nbytes is " + std::to_string(entry.nbytes) + ", but " +
                   tensor::describe(entry.spec.dtype, entry.spec.shape) + " has " +
                   std::to_string(*bytes) + " (W7)");
  }
  if (entry.offset > payload_bytes || entry.nbytes > payload_bytes - entry.offset) {
    return corrupt("its bytes " + std::to_string(entry.offset) + " + " +
                   std::to_string(entry.nbytes) + " end after the payload of " +
                   std::to_string(payload_bytes) + " (W7)");
  }
  return {};
}

Status read_entry(JsonValue value, uint64_t payload_bytes, Entry& entry) {
  if (!value.is(JsonKind::kObject)) {
    return corrupt("it is " + std::string(base::json_kind_name(value.kind())) +
                   ", it must be an object");
  }
  const Fields fields = find_fields(value);
  CHANGEOVER_TRY(check_kind(fields.name, "name", JsonKind::kString));
  entry.spec.name = *fields.name->string();
  if (const Status status = tensor::check_name(entry.spec.name); !status.ok()) {
    return corrupt(status);
  }
  return read_tensor(fields, payload_bytes, entry)
      .with_context("tensor " + base::quoted(entry.spec.name));
}

Status check_names(const std::vector<Entry>& entries, std::vector<uint32_t>& order) {
  const auto name = [&](uint32_t i) -> const std::string& { return entries[i].spec.name; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twice != order.end()) {
    return corrupt("tensor " + base::quoted(name(*twice)) +
                   ": the name comes twice in one frame (W7)");
  }
  return {};
}

// The ranges must cover the payload exactly: no overlap, no gap, nothing left over.
Status check_ranges(const std::vector<Entry>& entries, std::vector<uint32_t>& order,
                    uint64_t payload_bytes) {
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(entries[a].offset, entries[a].nbytes) <
           std::pair(entries[b].offset, entries[b].nbytes);
  });
  uint64_t covered = 0;
  const Entry* before = nullptr;
  for (const uint32_t i : order) {
    const Entry& entry = entries[i];
    if (entry.nbytes == 0) {
      continue;
    }
    if (entry.offset < covered) {
      return corrupt("tensor " + base::quoted(entry.spec.name) + ": its bytes from " +
                     std::to_string(entry.offset) + " overlap tensor " +
                     base::quoted(before->spec.name) + ", which ends at " +
                     std::to_string(covered) + " (W7)");
    }
    if (entry.offset > covered) {
      return corrupt("tensor " + base::quoted(entry.spec.name) + ": a gap of " +
                     std::to_string(entry.offset - covered) + " bytes before its offset " +
                     std::to_string(entry.offset) + " (W7)");
    }
    covered = entry.offset + entry.nbytes;
    before = &entry;
  }
  if (covered != payload_bytes) {
    return corrupt("the payload has " + std::to_string(payload_bytes) +
                   " bytes, its tensors cover " + std::to_string(covered) + " (W7)");
  }
  return {};
}

// Any JSON that says what metadata says; every message comes from here.
Status read_strict(std::string_view text, uint64_t payload_bytes, std::vector<Entry>& entries) {
  entries = {};
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(text, {.bytes_max = kMetadataBytesMax});
  if (!document.ok()) {
    return document.status();
  }
  const JsonValue root = document->root();
  if (!root.is(JsonKind::kArray)) {
    return corrupt("it is " + std::string(base::json_kind_name(root.kind())) +
                   ", it must be an array of tensors (W2)");
  }
  // A hostile array may have far more elements than tensors fit into its text: what is set aside
  // goes by the shortest text a tensor can have.
  constexpr size_t kEntryTextBytesMin = 48;
  entries.reserve(std::min(root.size(), text.size() / kEntryTextBytesMin + 1));
  for (const JsonValue value : root.elements()) {
    Entry entry;
    if (const Status status = read_entry(value, payload_bytes, entry); !status.ok()) {
      return status.with_context("entry " + std::to_string(entries.size()));
    }
    entries.push_back(std::move(entry));
  }
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  CHANGEOVER_TRY(check_names(entries, order));
  return check_ranges(entries, order, payload_bytes);
}

}  // namespace

Result<std::span<const Entry>> MetadataDecoder::decode(std::span<const std::byte> bytes,
                                                       uint64_t payload_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (bytes.size() > kMetadataBytesMax ||
      !read_canonical(text, payload_bytes, entries_, name_table_)) {
    name_table_ = {};
    CHANGEOVER_TRY(read_strict(text, payload_bytes, entries_).with_context("metadata"));
  }
  return std::span<const Entry>(entries_);
}

Result<std::vector<Entry>> decode_metadata(std::span<const std::byte> bytes,
                                           uint64_t payload_bytes) {
  MetadataDecoder decoder;
  CHANGEOVER_TRY(decoder.decode(bytes, payload_bytes).status());
  return decoder.take();
}

}  // namespace changeover::wire
