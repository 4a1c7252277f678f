// The 32 bytes that open a frame (rules W1, W5, W7, R2, R3, R6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <changeover/status.h>

#include "wire/frame.h"

namespace changeover::wire {

std::array<std::byte, kHeaderBytes> encode_header(const Header& header);
Header decode_header(std::span<const std::byte, kHeaderBytes> bytes);

struct FrameLimits {
  uint64_t metadata_bytes_max = kMetadataBytesMax;
  uint64_t payload_bytes_max = INT64_MAX;
};

struct HeaderCheck {
  Status status;        // kCorrupt names the rule and the numbers.
  bool in_step = true;  // false: the sizes cannot be trusted, nothing after them can be read (R3).
};

// Checks a frame's header before anything is read or allocated for it. `version` is the stream's:
// the expected one, or that of its first frame; none = any. A frame that fails but is in step is
// received by its sizes and dropped, and the update fails at END (R1, R2). END is always in step.
HeaderCheck check_header(const Header& header, const FrameLimits& limits,
                         std::optional<int64_t> version);

}  // namespace changeover::wire
