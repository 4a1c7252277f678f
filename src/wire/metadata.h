// A frame's metadata: the JSON list of its tensors (rules W2, W3, W7, W8). docs/wire_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <changeover/status.h>

#include "wire/frame.h"

namespace changeover::wire {

// Appends metadata entry by entry, byte for byte as the real sender writes it where there is
// neither slice nor digest.
class MetadataWriter {
 public:
  // `out` must outlive the writer.
  explicit MetadataWriter(std::string& out) : out_(out) { out_ += '['; }
  // kInvalidArgument names the tensor with a bad name or shape, or a dtype that the wire cannot
  // name; what was appended is then of no use.
  Status add(const TensorSpec& spec, uint64_t offset, uint64_t nbytes,
             const std::optional<TensorSlice>& slice = {}, const std::optional<Digest>& xxh3 = {});
  void close() { out_ += ']'; }

 private:
  std::string& out_;
};

// The metadata of a plain bucket with these tensors back to back from offset 0. Refuses what
// MetadataWriter does; `out` is then as before.
Status encode_metadata(std::span<const TensorSpec> specs, std::string& out);

// The same for entries with offsets, slices and digests of their own.
Status encode_metadata(std::span<const Entry> entries, std::string& out);

// Decodes frame after frame; memory is kept from one to the next. What senders write is read in one
// pass, whatever else is right (key order, white space, escapes, keys of W6) by a strict JSON
// reader.
class MetadataDecoder {
 public:
  // Checks all of rule W7 before it returns anything; kCorrupt names the tensor and the rule.
  // Entries come in the order of the metadata and are valid until the next call. Keys of extensions
  // that are not in `known`, and all other unknown keys, are ignored (rule W6).
  Result<std::span<const Entry>> decode(std::span<const std::byte> bytes, uint64_t payload_bytes,
                                        const WireExtensions& known = kEveryWireExtension);
  // The entries of the last decode() that was ok, which go with their memory.
  std::vector<Entry> take() { return std::exchange(entries_, {}); }

 private:
  std::vector<Entry> entries_;
  std::vector<uint64_t> name_table_;
};

// One frame's alone.
Result<std::vector<Entry>> decode_metadata(std::span<const std::byte> bytes, uint64_t payload_bytes,
                                           const WireExtensions& known = kEveryWireExtension);

}  // namespace changeover::wire
