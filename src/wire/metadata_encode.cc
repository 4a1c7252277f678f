#include <string>

#include "base/utf8.h"
#include "tensor/spec.h"
#include "wire/metadata.h"

namespace changeover::wire {

namespace {

// Writes \uXXXX as the real sender's JSON library does: four lower-case hex digits.
void append_unit(std::string& out, uint32_t unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) {
    out += kDigits[(unit >> shift) & 15];
  }
}

// The code point that starts at text[i], which is valid UTF-8; moves i past it.
uint32_t next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t at) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[at]));
  };
  const uint32_t first = byte(i);
  const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t value = length == 1 ? first : first & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) {
    value = value << 6 | (byte(i + k) & 0x3f);
  }
  i += length;
  return value;
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const uint32_t point = next_code_point(text, i);
    switch (point) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (point >= 0x20 && point < 0x80) {
          out += static_cast<char>(point);
        } else if (point < 0x10000) {
          append_unit(out, point);
        } else {
          append_unit(out, 0xd800 + ((point - 0x10000) >> 10));
          append_unit(out, 0xdc00 + ((point - 0x10000) & 0x3ff));
        }
    }
  }
  out += '"';
}

}  // namespace

Status MetadataWriter::add(const TensorSpec& spec, uint64_t offset, uint64_t nbytes,
                           const std::optional<TensorSlice>& slice,
                           const std::optional<Digest>& xxh3) {
  if (Status status = tensor::check_name(spec.name); !status.ok()) {
    return status.with_context("tensor " + base::quoted(spec.name));
  }
  const auto dtype = wire_dtype_name(spec.dtype);
  if (!dtype) {
    return Status(Code::kInvalidArgument,
                  "tensor " + base::quoted(spec.name) + ": dtype " +
                      std::string(dtype_name(spec.dtype)) +
                      " has no name on the wire; send it packed as uint8 (W2)");
  }
  out_ += out_.ends_with('[') ? "{\"name\":" : ",{\"name\":";
  append_string(out_, spec.name);
  out_ += ",\"shape\":";
  out_ += tensor::describe_shape(spec.shape);
  out_ += ",\"dtype\":\"";
  out_ += *dtype;
  out_ += "\",\"offset\":";
  out_ += std::to_string(offset);
  out_ += ",\"nbytes\":";
  out_ += std::to_string(nbytes);
  if (slice) {
    out_ +=
        ",\"slice\":[" + std::to_string(slice->first) + ',' + std::to_string(slice->total) + ']';
  }
  if (xxh3) {
    out_ += ",\"xxh3\":\"" + xxh3->to_text() + '"';
  }
  out_ += '}';
  return {};
}

Status encode_metadata(std::span<const TensorSpec> specs, std::string& out) {
  const size_t before = out.size();
  MetadataWriter writer(out);
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const Result<int64_t> nbytes = byte_count(spec.dtype, spec.shape);
    Status status = nbytes.ok() ? writer.add(spec, offset, static_cast<uint64_t>(*nbytes))
                                : nbytes.status().with_context("tensor " + base::quoted(spec.name));
    if (!status.ok()) {
      out.resize(before);
      return status;
    }
    offset += static_cast<uint64_t>(*nbytes);
  }
  writer.close();
  return {};
}

Status encode_metadata(std::span<const Entry> entries, std::string& out) {
  const size_t before = out.size();
  MetadataWriter writer(out);
  for (const Entry& entry : entries) {
    if (Status status = writer.add(entry.spec, entry.offset, entry.nbytes, entry.slice, entry.xxh3);
        !status.ok()) {
      out.resize(before);
      return status;
    }
  }
  writer.close();
  return {};
}

}  // namespace changeover::wire
