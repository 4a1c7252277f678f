#include "wire/metadata_canonical.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "tensor/spec.h"

namespace changeover::wire {

namespace {

// The text and how far it was read; every step says whether it found what it wanted.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  bool at_end() const { return at_ == end_; }

  template <size_t kSize>
  bool take(const char (&literal)[kSize]) {
    constexpr size_t kBytes = kSize - 1;
    if (static_cast<size_t>(end_ - at_) < kBytes || std::memcmp(at_, literal, kBytes) != 0) {
      return false;
    }
    at_ += kBytes;
    return true;
  }

  // What stands before the next '"', and the '"': ASCII without escapes or control characters.
  bool take_text(std::string_view& out) {
    const char* const begin = at_;
    for (; at_ != end_; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"') {
        out = {begin, static_cast<size_t>(at_ - begin)};
        ++at_;
        return true;
      }
      if (byte < 0x20 || byte > 0x7f || byte == '\\') {
        return false;
      }
    }
    return false;
  }

  // A non-negative integer as JSON spells it, of at most 18 digits.
  bool take_number(int64_t& out) {
    constexpr int kDigitsMax = 18;
    const char* const begin = at_;
    out = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') {
      if (at_ - begin == kDigitsMax) {
        return false;
      }
      out = out * 10 + (*at_++ - '0');
    }
    return at_ != begin && (*begin != '0' || at_ - begin == 1);
  }

 private:
  const char* at_;
  const char* end_;
};

bool take_shape(Cursor& cursor, std::vector<int64_t>& shape) {
  shape.clear();
  if (cursor.take("]")) {
    return true;
  }
  do {
    int64_t extent = 0;
    if (shape.size() == kTensorDimsMax || !cursor.take_number(extent)) {
      return false;
    }
    shape.push_back(extent);
  } while (cursor.take(","));
  return cursor.take("]");
}

// One entry, whose bytes must start at `offset`.
bool take_entry(Cursor& cursor, uint64_t offset, const Entry* before, Entry& entry) {
  std::string_view name;
  std::string_view dtype_text;
  int64_t said_offset = 0;
  int64_t nbytes = 0;
  if (!cursor.take("{\"name\":\"") || !cursor.take_text(name) || name.empty() ||
      name.size() > kTensorNameBytesMax || !cursor.take(",\"shape\":[") ||
      !take_shape(cursor, entry.spec.shape) || !cursor.take(",\"dtype\":\"") ||
      !cursor.take_text(dtype_text) || !cursor.take(",\"offset\":") ||
      !cursor.take_number(said_offset) || !cursor.take(",\"nbytes\":") ||
      !cursor.take_number(nbytes) || !cursor.take("}")) {
    return false;
  }
  // Most tensors have the dtype of the one before.
  auto dtype = before != nullptr ? std::optional(before->spec.dtype) : std::nullopt;
  if (!dtype || wire_dtype_name(*dtype) != dtype_text) {
    dtype = dtype_from_wire_name(dtype_text);
  }
  if (!dtype) {
    return false;
  }
  const Result<int64_t> bytes = byte_count(*dtype, entry.spec.shape);
  if (!bytes.ok() || *bytes != nbytes || static_cast<uint64_t>(said_offset) != offset) {
    return false;
  }
  entry.spec.name.assign(name);
  entry.spec.dtype = *dtype;
  entry.offset = offset;
  entry.nbytes = static_cast<uint64_t>(nbytes);
  entry.slice.reset();  // Of the frame that used this memory before.
  entry.xxh3.reset();
  return true;
}

// Slots hold the high half of the name's hash and the entry's number plus one. Names made to fall
// on one another are left to the strict reader, which sorts.
bool names_differ(const std::vector<Entry>& entries, NameTable& table) {
  constexpr int kProbesMax = 64;
  constexpr uint64_t kNumberMask = UINT32_MAX;
  if (entries.size() >= kNumberMask) {
    return false;
  }
  const size_t mask = std::bit_ceil(entries.size() * 2 + 1) - 1;
  table.assign(mask + 1, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].spec.name;
    const uint64_t hash = std::hash<std::string_view>{}(name);
    size_t slot = hash & mask;
    for (int probe = 0; table[slot] != 0; slot = (slot + 1) & mask) {
      const bool same_hash = ((table[slot] ^ hash) & ~kNumberMask) == 0;
      if (++probe == kProbesMax ||
          (same_hash && entries[(table[slot] & kNumberMask) - 1].spec.name == name)) {
        return false;
      }
    }
    table[slot] = (hash & ~kNumberMask) | (i + 1);
  }
  return true;
}

}  // namespace

bool read_canonical(std::string_view text, uint64_t payload_bytes, std::vector<Entry>& entries,
                    NameTable& names) {
  Cursor cursor(text);
  if (!cursor.take("[")) {
    return false;
  }
  size_t count = 0;
  uint64_t offset = 0;
  do {
    if (count == entries.size()) {
      entries.emplace_back();
    }
    Entry& entry = entries[count];
    if (!take_entry(cursor, offset, count > 0 ? &entries[count - 1] : nullptr, entry)) {
      return false;
    }
    ++count;
    offset += entry.nbytes;  // Each is below 10^18, and the sum is compared at every step.
    if (offset > payload_bytes) {
      return false;
    }
  } while (cursor.take(","));
  entries.resize(count);
  return cursor.take("]") && cursor.at_end() && offset == payload_bytes &&
         names_differ(entries, names);
}

}  // namespace changeover::wire
