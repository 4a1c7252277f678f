// A frame's metadata: the JSON list of its tensors (rules W2, W3, W7, W8). docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>

#include "wire/frame.h"

namespace changeover::wire {

// Appends the metadata of a bucket with these tensors back to back from offset 0, byte for byte as
// the real sender writes it. kInvalidArgument names the tensor with a bad name or shape, or a dtype
// that the wire cannot name; `out` is then as before.
Status encode_metadata(std::span<const TensorSpec> specs, std::string& out);

// The same for entries with offsets of their own.
Status encode_metadata(std::span<const Entry> entries, std::string& out);

// Checks all of rule W7 before it returns anything; kCorrupt names the tensor and the rule.
// Entries come in the order of the metadata. Unknown keys are ignored (rule W6).
Result<std::vector<Entry>> decode_metadata(std::span<const std::byte> bytes,
                                           uint64_t payload_bytes);

}  // namespace changeover::wire
