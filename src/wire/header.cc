#include "wire/header.h"

#include <string>

namespace changeover::wire {

namespace {

void put(std::byte* at, int64_t value) {
  for (int i = 0; i < 8; ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

int64_t get(const std::byte* at) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) {
    value |= static_cast<uint64_t>(at[i]) << (8 * i);
  }
  return static_cast<int64_t>(value);
}

Status corrupt(std::string_view message) {
  return {Code::kCorrupt, message};
}

// ok if the sizes can be trusted to find the next frame.
Status check_size(std::string_view what, int64_t bytes, uint64_t bytes_max) {
  if (bytes < 0) {
    return corrupt("the header's " + std::string(what) + " size is " + std::to_string(bytes) +
                   ", a size is not negative (W7)");
  }
  if (static_cast<uint64_t>(bytes) > bytes_max) {
    return corrupt("the header announces " + std::to_string(bytes) + " bytes of " +
                   std::string(what) + ", the ceiling is " + std::to_string(bytes_max) + " (W7)");
  }
  return {};
}

Status check_version(const Header& header, std::optional<int64_t> version) {
  if (header.version < 0) {
    return corrupt("the header's version is " + std::to_string(header.version) +
                   ", a version is not negative (T1)");
  }
  if (version && header.version != *version) {
    return corrupt("the frame carries version " + std::to_string(header.version) +
                   ", the stream's is " + std::to_string(*version) + " (W5, R6)");
  }
  return {};
}

}  // namespace

std::array<std::byte, kHeaderBytes> encode_header(const Header& header) {
  std::array<std::byte, kHeaderBytes> bytes;
  put(bytes.data(), header.command);
  put(bytes.data() + 8, header.metadata_bytes);
  put(bytes.data() + 16, header.payload_bytes);
  put(bytes.data() + 24, header.version);
  return bytes;
}

Header decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  return {get(bytes.data()), get(bytes.data() + 8), get(bytes.data() + 16), get(bytes.data() + 24)};
}

HeaderCheck check_header(const Header& header, const FrameLimits& limits,
                         std::optional<int64_t> version) {
  if (header.command == kEnd) {
    if (header.metadata_bytes != 0 || header.payload_bytes != 0) {
      return {corrupt("END carries sizes (metadata " + std::to_string(header.metadata_bytes) +
                      ", payload " + std::to_string(header.payload_bytes) +
                      "), both must be 0 (W5)")};
    }
    return {check_version(header, version)};
  }
  Status sizes = check_size("metadata", header.metadata_bytes, limits.metadata_bytes_max);
  if (sizes.ok()) {
    sizes = check_size("payload", header.payload_bytes, limits.payload_bytes_max);
  }
  if (!sizes.ok()) {
    return {sizes, false};
  }
  if (header.command != kBucket) {
    return {corrupt("unknown command " + std::to_string(header.command) +
                    ", known are 0 (END) and 1 (BUCKET) (R2)")};
  }
  return {check_version(header, version)};
}

}  // namespace changeover::wire
