// What is in a recorded stream, for tools: every frame up to the first broken rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/tensor.h>
#include <changeover/types.h>
#include <changeover/wire_extensions.h>

namespace changeover {

struct StreamTensor {
  TensorSpec spec;
  uint64_t offset = 0;                              // In its frame's payload.
  uint64_t nbytes = 0;                              // Of this part, where there is a slice.
  std::optional<TensorSlice> slice = std::nullopt;  // Extensions of the wire, rule W6.
  std::optional<Digest> xxh3 = std::nullopt;        // Of the whole tensor, with its last part.
};

struct StreamFrame {
  int64_t command = 0;  // 1 = bucket.
  int64_t version = 0;
  int64_t metadata_bytes = 0;
  int64_t payload_bytes = 0;
  std::vector<StreamTensor> tensors;  // Empty where the metadata broke a rule.
  uint64_t payload_position = 0;      // Where the payload starts in the recording.
};

struct StreamReport {
  std::vector<StreamFrame> frames;     // Without END.
  std::optional<int64_t> end_version;  // Set when END was reached.
  // The first broken rule (kCorrupt, naming frame, tensor, rule and numbers); ok if there is none.
  // Frames after it are still listed as long as their sizes can be trusted.
  Status status;
};

// Reads a whole recording: frames and END, nothing before, between or after them. Extensions of the
// wire are read; a tensor that carries its digest is compared with it.
StreamReport inspect_stream(std::span<const std::byte> recording);

}  // namespace changeover
