#include "tensor/version_digest.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/digest.h"

namespace changeover::tensor {

namespace {

void append(std::vector<std::byte>& out, const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + bytes);
}

template <typename Integer>
void append_integer(std::vector<std::byte>& out, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

}  // namespace

void VersionDigester::clear() {
  bytes_.clear();
  records_.clear();
}

void VersionDigester::add(const TensorSpec& spec, const Digest& digest) {
  Record record;
  record.begin = bytes_.size();
  record.name_bytes = spec.name.size();
  const std::string_view dtype = dtype_name(spec.dtype);
  append_integer(bytes_, static_cast<uint32_t>(spec.name.size()));
  append(bytes_, spec.name.data(), spec.name.size());
  append_integer(bytes_, static_cast<uint32_t>(dtype.size()));
  append(bytes_, dtype.data(), dtype.size());
  append_integer(bytes_, static_cast<uint32_t>(spec.shape.size()));
  for (const int64_t dimension : spec.shape) {
    append_integer(bytes_, dimension);
  }
  append(bytes_, digest.bytes.data(), digest.bytes.size());
  record.bytes = bytes_.size() - record.begin;
  records_.push_back(record);
}

Digest VersionDigester::finish() {
  const auto name = [this](const Record& record) {
    return std::string_view(
        reinterpret_cast<const char*>(bytes_.data() + record.begin + sizeof(uint32_t)),
        record.name_bytes);
  };
  // string_view compares its characters as unsigned bytes, which is the order that is wanted.
  std::sort(records_.begin(), records_.end(),
            [&](const Record& a, const Record& b) { return name(a) < name(b); });
  base::Hasher hasher;
  for (const Record& record : records_) {
    hasher.update(std::span(bytes_).subspan(record.begin, record.bytes));
  }
  return hasher.finish();
}

}  // namespace changeover::tensor
