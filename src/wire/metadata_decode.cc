#include <algorithm>
#include <array>
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
  std::optional<JsonValue> slice;
  std::optional<JsonValue> xxh3;
};

Fields find_fields(JsonValue object, const WireExtensions& known) {
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
    } else if (member.key == "slice" && known.slices) {
      fields.slice = member.value;
    } else if (member.key == "xxh3" && known.xxh3) {
      fields.xxh3 = member.value;
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

Status read_slice(const Fields& fields, uint64_t tensor_bytes, Entry& entry) {
  CHANGEOVER_TRY(check_kind(fields.slice, "slice", JsonKind::kArray));
  if (fields.slice->size() != 2) {
    return corrupt("its slice has " + std::to_string(fields.slice->size()) +
                   " elements, it must be [first,total] (W6)");
  }
  std::array<uint64_t, 2> numbers{};
  size_t count = 0;
  for (const JsonValue number : fields.slice->elements()) {
    CHANGEOVER_TRY_ASSIGN(numbers[count],
                          read_size(number, count == 0 ? "slice's first byte" : "slice's total"));
    ++count;
  }
  const auto [first, total] = numbers;
  entry.slice = {first, total};
  if (total != tensor_bytes) {
    return corrupt("its slice's total is " + std::to_string(total) + ", but " +
                   tensor::describe(entry.spec.dtype, entry.spec.shape) + " has " +
                   std::to_string(tensor_bytes) + " bytes (W6)");
  }
  if (entry.nbytes == 0) {
    return corrupt("its part from byte " + std::to_string(first) + " has no bytes (W6)");
  }
  if (first > total || entry.nbytes > total - first) {
    return corrupt("its part of bytes " + std::to_string(first) + " + " +
                   std::to_string(entry.nbytes) + " ends after the tensor's " +
                   std::to_string(total) + " (W6)");
  }
  return {};
}

Status read_xxh3(const Fields& fields, Entry& entry) {
  CHANGEOVER_TRY(check_kind(fields.xxh3, "xxh3", JsonKind::kString));
  const Result<Digest> digest = Digest::parse(*fields.xxh3->string());
  if (!digest.ok()) {
    return corrupt("its xxh3 " + base::quoted(*fields.xxh3->string()) +
                   " is not 32 lower-case hex digits (W6)");
  }
  if (!entry.is_last_part()) {
    return corrupt("its xxh3 comes with a part that is not its last (W6)");
  }
  entry.xxh3 = *digest;
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
  if (fields.slice) {
    CHANGEOVER_TRY(read_slice(fields, static_cast<uint64_t>(*bytes), entry));
  } else if (entry.nbytes != static_cast<uint64_t>(*bytes)) {
    return corrupt("its nbytes is " + std::to_string(entry.nbytes) + ", but " +
                   tensor::describe(entry.spec.dtype, entry.spec.shape) + " has " +
                   std::to_string(*bytes) + " (W7)");
  }
  if (entry.offset > payload_bytes || entry.nbytes > payload_bytes - entry.offset) {
    return corrupt("its bytes " + std::to_string(entry.offset) + " + " +
                   std::to_string(entry.nbytes) + " end after the payload of " +
                   std::to_string(payload_bytes) + " (W7)");
  }
  return fields.xxh3 ? read_xxh3(fields, entry) : Status();
}

Status read_entry(JsonValue value, uint64_t payload_bytes, const WireExtensions& known,
                  Entry& entry) {
  if (!value.is(JsonKind::kObject)) {
    return corrupt("it is " + std::string(base::json_kind_name(value.kind())) +
                   ", it must be an object");
  }
  const Fields fields = find_fields(value, known);
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

// A tensor's parts lie back to back over the frames: one that another follows ends its frame's
// payload, one that follows another starts it, and no frame holds two.
Status check_parts(const std::vector<Entry>& entries, uint64_t payload_bytes) {
  const Entry* part = nullptr;
  for (const Entry& entry : entries) {
    if (!entry.slice) {
      continue;
    }
    const std::string tensor = "tensor " + base::quoted(entry.spec.name);
    if (part != nullptr) {
      return corrupt(tensor + ": a second part in one frame, after one of tensor " +
                     base::quoted(part->spec.name) + " (W6)");
    }
    part = &entry;
    if (entry.slice->first != 0 && entry.offset != 0) {
      return corrupt(tensor + ": its part from byte " + std::to_string(entry.slice->first) +
                     " is at offset " + std::to_string(entry.offset) +
                     ", a part that follows another is the first of its frame (W6)");
    }
    if (!entry.is_last_part() && entry.offset + entry.nbytes != payload_bytes) {
      return corrupt(tensor + ": its part ends at " + std::to_string(entry.offset + entry.nbytes) +
                     " of the payload's " + std::to_string(payload_bytes) +
                     ", a part that another follows is the last of its frame (W6)");
    }
  }
  return {};
}

// Why there may be no gap before this entry; ok if there may.
Status check_gap(const Entry& entry, uint64_t covered, const WireExtensions& known) {
  const uint64_t gap = entry.offset - covered;
  const std::string text = "tensor " + base::quoted(entry.spec.name) + ": a gap of " +
                           std::to_string(gap) + " bytes before its offset " +
                           std::to_string(entry.offset);
  if (!known.aligned) {
    return corrupt(text + " (W7)");
  }
  if (gap >= kAlignmentBytes) {
    return corrupt(text + ", only gaps under 64 align a tensor (W7)");
  }
  if (entry.offset % kAlignmentBytes != 0) {
    return corrupt(text + ", which is not a multiple of 64 (W6, W7)");
  }
  return {};
}

// The ranges must cover the payload exactly: no overlap, nothing left over, and no gap but those
// that put every tensor of the frame at a multiple of 64.
Status check_ranges(const std::vector<Entry>& entries, std::vector<uint32_t>& order,
                    uint64_t payload_bytes, const WireExtensions& known) {
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(entries[a].offset, entries[a].nbytes) <
           std::pair(entries[b].offset, entries[b].nbytes);
  });
  uint64_t covered = 0;
  const Entry* before = nullptr;
  const Entry* unaligned = nullptr;
  bool gaps = false;
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
      CHANGEOVER_TRY(check_gap(entry, covered, known));
      gaps = true;
    }
    if (entry.offset % kAlignmentBytes != 0) {
      unaligned = &entry;
    }
    covered = entry.offset + entry.nbytes;
    before = &entry;
  }
  if (covered != payload_bytes) {
    return corrupt("the payload has " + std::to_string(payload_bytes) +
                   " bytes, its tensors cover " + std::to_string(covered) + " (W7)");
  }
  if (gaps && unaligned != nullptr) {
    return corrupt("tensor " + base::quoted(unaligned->spec.name) + ": its offset " +
                   std::to_string(unaligned->offset) +
                   " is not a multiple of 64, in a frame with gaps (W6, W7)");
  }
  return {};
}

// Any JSON that says what metadata says; every message comes from here.
Status read_strict(std::string_view text, uint64_t payload_bytes, const WireExtensions& known,
                   std::vector<Entry>& entries) {
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
    if (const Status status = read_entry(value, payload_bytes, known, entry); !status.ok()) {
      return status.with_context("entry " + std::to_string(entries.size()));
    }
    entries.push_back(std::move(entry));
  }
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  CHANGEOVER_TRY(check_parts(entries, payload_bytes));
  CHANGEOVER_TRY(check_names(entries, order));
  return check_ranges(entries, order, payload_bytes, known);
}

}  // namespace

Result<std::span<const Entry>> MetadataDecoder::decode(std::span<const std::byte> bytes,
                                                       uint64_t payload_bytes,
                                                       const WireExtensions& known) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (bytes.size() > kMetadataBytesMax ||
      !read_canonical(text, payload_bytes, entries_, name_table_)) {
    name_table_ = {};
    CHANGEOVER_TRY(read_strict(text, payload_bytes, known, entries_).with_context("metadata"));
  }
  return std::span<const Entry>(entries_);
}

Result<std::vector<Entry>> decode_metadata(std::span<const std::byte> bytes, uint64_t payload_bytes,
                                           const WireExtensions& known) {
  MetadataDecoder decoder;
  CHANGEOVER_TRY(decoder.decode(bytes, payload_bytes, known).status());
  return decoder.take();
}

}  // namespace changeover::wire
