// Metadata that decodes must encode to metadata that decodes to the same, and the reader of what is
// written canonically must agree with the strict one, to which a blank in front sends a text.
#include <cstring>
#include <vector>

#include "wire/metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover::wire;
  if (size < 2) {
    return 0;
  }
  // The payload's size first, so that it can be matched.
  const uint64_t payload_bytes = data[0] | data[1] << 8;
  const auto entries =
      decode_metadata({reinterpret_cast<const std::byte*>(data) + 2, size - 2}, payload_bytes);
  std::vector<std::byte> spaced(size - 1, std::byte{' '});
  std::memcpy(spaced.data() + 1, data + 2, size - 2);
  const auto strict = decode_metadata(spaced, payload_bytes);
  if (strict.ok() != entries.ok() || (strict.ok() && *strict != *entries)) {
    __builtin_trap();
  }
  if (!entries.ok()) {
    if (entries.status().message().empty()) {
      __builtin_trap();
    }
    return 0;
  }
  std::string text;
  if (!encode_metadata(*entries, text).ok()) {
    __builtin_trap();
  }
  const auto again = decode_metadata(std::as_bytes(std::span(text)), payload_bytes);
  if (!again.ok() || *again != *entries) {
    __builtin_trap();
  }
  return 0;
}
