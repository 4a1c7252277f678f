#include <algorithm>
#include <system_error>
#include <utility>

#include <changeover/checkpoint.h>

#include "base/utf8.h"
#include "os/file.h"
#include "safetensors/header.h"
#include "safetensors/index.h"
#include "tensor/copy.h"
#include "tensor/spec.h"

namespace changeover {

namespace {

namespace fs = std::filesystem;

constexpr size_t kPackBytes = 1 << 20;

std::vector<TensorSpec> specs_of(std::span<const NamedTensor> tensors) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    specs.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
  }
  return specs;
}

Status write_data(os::AtomicFile& file, const TensorView& view, std::vector<std::byte>& buffer) {
  CHANGEOVER_TRY_ASSIGN(const tensor::Packer packer, tensor::Packer::open(view));
  if (!packer.contiguous().empty()) {
    return file.write(packer.contiguous());
  }
  for (uint64_t at = 0; at < packer.bytes();) {
    buffer.resize(std::min<uint64_t>(kPackBytes, packer.bytes() - at));
    packer.pack(at, buffer);
    CHANGEOVER_TRY(file.write(buffer));
    at += buffer.size();
  }
  return {};
}

// Everything that can be refused is refused before the first byte is written.
Status check_views(std::span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) {
    if (const Status status = tensor::check_view(tensor.view); !status.ok()) {
      return status.with_context("tensor " + base::quoted(tensor.name));
    }
  }
  return {};
}

struct Shard {
  size_t first = 0;
  size_t count = 0;
  uint64_t bytes = 0;
};

Result<std::vector<Shard>> cut(std::span<const NamedTensor> tensors, uint64_t shard_bytes_max) {
  std::vector<Shard> shards(1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHANGEOVER_TRY_ASSIGN(const int64_t bytes,
                          byte_count(tensors[i].view.dtype, tensors[i].view.shape));
    const auto size = static_cast<uint64_t>(bytes);
    if (shards.back().bytes > 0 &&
        size > shard_bytes_max - std::min(shards.back().bytes, shard_bytes_max)) {
      shards.push_back({.first = i});
    }
    ++shards.back().count;
    shards.back().bytes += size;
  }
  return shards;
}

std::string number(size_t value) {
  const std::string text = std::to_string(value);
  return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
}

// Names that no file in the folder has: shards of an older checkpoint there stay whole, and its
// index names them until the new index takes its place.
std::vector<std::string> free_names(const fs::path& directory, size_t count) {
  for (size_t attempt = 1;; ++attempt) {
    std::vector<std::string> names;
    bool taken = false;
    for (size_t i = 1; i <= count && !taken; ++i) {
      names.push_back("model-" + number(i) + "-of-" + number(count) +
                      (attempt > 1 ? "-" + std::to_string(attempt) : "") + ".safetensors");
      std::error_code error;
      taken = fs::exists(directory / names.back(), error);
    }
    if (!taken) {
      return names;
    }
  }
}

}  // namespace

Status write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  Status status = check_views(tensors);
  if (!status.ok()) {
    return status.with_context(path.string());
  }
  Result<std::string> header = safetensors::make_header(specs_of(tensors), metadata);
  if (!header.ok()) {
    return header.status().with_context(path.string());
  }
  CHANGEOVER_TRY_ASSIGN(const std::unique_ptr<os::AtomicFile> file,
                        os::AtomicFile::create(path.string()));
  CHANGEOVER_TRY(file->write(std::as_bytes(std::span(*header))));
  std::vector<std::byte> buffer;
  for (const NamedTensor& tensor : tensors) {
    CHANGEOVER_TRY(write_data(*file, tensor.view, buffer));
  }
  return file->commit();
}

Status write_sharded_safetensors(const fs::path& directory, std::span<const NamedTensor> tensors,
                                 uint64_t shard_bytes_max,
                                 const std::map<std::string, std::string>& metadata) {
  if (tensors.empty()) {
    return {Code::kInvalidArgument, directory.string() + ": there are no tensors to write"};
  }
  CHANGEOVER_TRY(check_views(tensors));
  // Checks names over all shards; the shards' own headers are smaller.
  CHANGEOVER_TRY(
      safetensors::make_header(specs_of(tensors), metadata, {.header_bytes_max = UINT64_MAX})
          .status());
  CHANGEOVER_TRY_ASSIGN(const std::vector<Shard> shards, cut(tensors, shard_bytes_max));
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return {Code::kInvalidArgument, directory.string() + ": " + error.message()};
  }
  const std::vector<std::string> names = free_names(directory, shards.size());
  safetensors::WeightMap weight_map;
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::span<const NamedTensor> part = tensors.subspan(shards[i].first, shards[i].count);
    CHANGEOVER_TRY(write_safetensors(directory / names[i], part, metadata));
    for (const NamedTensor& tensor : part) {
      weight_map.emplace(tensor.name, names[i]);
    }
    total += shards[i].bytes;
  }
  const std::string index = safetensors::make_index(weight_map, total);
  return os::write_file_atomically((directory / safetensors::kIndexName).string(),
                                   std::as_bytes(std::span(index)));
}

}  // namespace changeover
