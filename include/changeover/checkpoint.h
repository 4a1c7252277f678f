// Checkpoints at rest: safetensors files and folders, strict reader and atomic writer.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/source.h>
#include <changeover/status.h>
#include <changeover/tensor.h>

namespace changeover {

// A safetensors file, or a folder with one file or model.safetensors.index.json and its shards,
// mapped read-only. Every header is checked in full before open() returns (kCorrupt names file,
// tensor and rule): no gaps, no overlaps, no bytes left over, shape x dtype = bytes, no name twice.
//
// As a TensorSource it publishes in data order (several shards: by file name) unless given an
// order. A file that is rewritten while it is published is found by the digest (may_change()).
class Checkpoint : public TensorSource {
 public:
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& path);

  // The file's own "__metadata__", merged over shards.
  virtual const std::map<std::string, std::string>& metadata() const = 0;
  // All tensors in publishing order.
  virtual std::span<const TensorSpec> specs() const = 0;
  // Index of a tensor in specs().
  virtual std::optional<size_t> find(std::string_view name) const = 0;
  // Borrowed bytes, valid while the checkpoint lives. Needs no begin_update().
  virtual TensorView view(size_t index) const = 0;
  // Publishes in this order from now on; kInvalidArgument unless it is a permutation of the names.
  virtual Status set_order(std::span<const std::string> names) = 0;
};

struct SafetensorsLimits {
  uint64_t header_bytes_max = 100'000'000;  // The limit of the format's other readers.
};

// Writes one file: to a temporary name, fsync, rename. Refuses (kInvalidArgument) what a reader
// would refuse; kExhausted with both numbers where the disk is full, the old file untouched.
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata);

// Writes shards of at most `shard_bytes_max` (a larger tensor gets its own) under names that are
// free in the folder, and then the index: until that moment an older checkpoint there stays whole.
// Its shards are left to the caller.
Status write_sharded_safetensors(const std::filesystem::path& directory,
                                 std::span<const NamedTensor> tensors, uint64_t shard_bytes_max,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace changeover
