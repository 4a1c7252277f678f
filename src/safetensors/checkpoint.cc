#include <algorithm>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <changeover/checkpoint.h>

#include "base/utf8.h"
#include "os/mapping.h"
#include "safetensors/header.h"
#include "safetensors/index.h"

namespace changeover {

namespace {

namespace fs = std::filesystem;

class MappedCheckpoint final : public Checkpoint {
 public:
  // Adds a file's tensors after those that are there.
  Status add_shard(const fs::path& path);
  Status check_index(const safetensors::WeightMap& weight_map, const fs::path& directory);

  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  std::span<const TensorSpec> specs() const override { return specs_; }
  std::optional<size_t> find(std::string_view name) const override {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  TensorView view(size_t index) const override {
    return {specs_[index].dtype, specs_[index].shape, {}, places_[index].data};
  }
  Status set_order(std::span<const std::string> names) override;

  Result<std::span<const TensorSpec>> begin_update() override {
    return std::span<const TensorSpec>(specs_);
  }
  Result<TensorView> read(size_t index) override { return view(index); }
  void end_update() override {}
  uint64_t generation() const override { return 1; }
  // Another process may write to the file while it is mapped.
  bool may_change() const override { return true; }

 private:
  struct Place {
    const std::byte* data = nullptr;
    size_t shard = 0;
  };
  std::vector<os::Mapping> mappings_;
  std::vector<fs::path> paths_;
  std::vector<TensorSpec> specs_;
  std::vector<Place> places_;  // Of specs_.
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

Status MappedCheckpoint::add_shard(const fs::path& path) {
  CHANGEOVER_TRY_ASSIGN(os::Mapping mapping, os::map_file(path.string()));
  Result<safetensors::Header> header = safetensors::parse_header(mapping.span());
  if (!header.ok()) {
    return header.status().with_context(path.string());
  }
  for (safetensors::Tensor& tensor : header->tensors) {
    const auto [first, added] = index_.emplace(tensor.spec.name, specs_.size());
    if (!added) {
      return {Code::kCorrupt, path.string() + ": tensor " + base::quoted(tensor.spec.name) +
                                  " is in " + paths_[places_[first->second].shard].string() +
                                  " already"};
    }
    places_.push_back({mapping.data() + tensor.position, mappings_.size()});
    specs_.push_back(std::move(tensor.spec));
  }
  metadata_.merge(header->metadata);  // Where shards differ the first one's value stays.
  mappings_.push_back(std::move(mapping));
  paths_.push_back(path);
  return {};
}

Status MappedCheckpoint::check_index(const safetensors::WeightMap& weight_map,
                                     const fs::path& directory) {
  for (const auto& [name, shard] : weight_map) {
    const std::optional<size_t> found = find(name);
    if (!found || paths_[places_[*found].shard] != directory / shard) {
      return {Code::kCorrupt, (directory / safetensors::kIndexName).string() + ": tensor " +
                                  base::quoted(name) + " should be in " + shard + " but is " +
                                  (found ? "in " + paths_[places_[*found].shard].string()
                                         : std::string("nowhere"))};
    }
  }
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!weight_map.contains(specs_[i].name)) {
      return {Code::kCorrupt, paths_[places_[i].shard].string() + ": tensor " +
                                  base::quoted(specs_[i].name) + " is not in the index"};
    }
  }
  return {};
}

Status MappedCheckpoint::set_order(std::span<const std::string> names) {
  const auto invalid = [](const std::string& why) {
    return Status(Code::kInvalidArgument, "order: " + why);
  };
  std::vector<size_t> from;
  std::vector<bool> seen(specs_.size(), false);
  for (const std::string& name : names) {
    const std::optional<size_t> found = find(name);
    if (!found) {
      return invalid("there is no tensor " + base::quoted(name));
    }
    if (seen[*found]) {
      return invalid("tensor " + base::quoted(name) + " comes twice");
    }
    seen[*found] = true;
    from.push_back(*found);
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    return invalid("it has " + std::to_string(names.size()) + " names for " +
                   std::to_string(specs_.size()) + " tensors; " +
                   base::quoted(specs_[missing - seen.begin()].name) + " is missing");
  }
  std::vector<TensorSpec> specs;
  std::vector<Place> places;
  for (const size_t i : from) {
    index_[specs_[i].name] = specs.size();
    specs.push_back(std::move(specs_[i]));
    places.push_back(places_[i]);
  }
  specs_ = std::move(specs);
  places_ = std::move(places);
  return {};
}

Result<std::unique_ptr<Checkpoint>> open_sharded(const fs::path& index) {
  CHANGEOVER_TRY_ASSIGN(const safetensors::WeightMap weight_map, safetensors::read_index(index));
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map) {
    shards.insert(shard);
  }
  auto checkpoint = std::make_unique<MappedCheckpoint>();
  const fs::path directory = index.parent_path();
  for (const std::string& shard : shards) {
    const fs::path path = directory / shard;
    std::error_code error;
    if (!fs::exists(path, error)) {
      return Status(Code::kCorrupt,
                    index.string() + ": its shard " + path.string() + " is missing");
    }
    CHANGEOVER_TRY(checkpoint->add_shard(path));
  }
  CHANGEOVER_TRY(checkpoint->check_index(weight_map, directory));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Result<std::unique_ptr<Checkpoint>> open_file(const fs::path& path) {
  auto checkpoint = std::make_unique<MappedCheckpoint>();
  CHANGEOVER_TRY(checkpoint->add_shard(path));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Result<std::unique_ptr<Checkpoint>> open_directory(const fs::path& path) {
  std::error_code error;
  const fs::path index = path / safetensors::kIndexName;
  if (fs::exists(index, error)) {
    return open_sharded(index);
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".safetensors") {
      files.push_back(at->path());
    }
  }
  if (error) {
    return Status(Code::kInvalidArgument, path.string() + ": " + error.message());
  }
  if (files.size() != 1) {
    return Status(Code::kInvalidArgument,
                  path.string() + ": " +
                      (files.empty() ? std::string("no .safetensors file")
                                     : std::to_string(files.size()) + " .safetensors files") +
                      " and no " + std::string(safetensors::kIndexName));
  }
  return open_file(files.front());
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return open_directory(path);
  }
  return path.extension() == ".json" ? open_sharded(path) : open_file(path);
}

}  // namespace changeover
