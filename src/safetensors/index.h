// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover::safetensors {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// Tensor name -> shard's file name, a plain name in the index's own folder. kCorrupt for anything
// else, so that an index cannot lead out of its folder.
using WeightMap = std::map<std::string, std::string, std::less<>>;
Result<WeightMap> read_index(const std::filesystem::path& path);

std::string make_index(const WeightMap& weight_map, uint64_t bytes_total);

}  // namespace changeover::safetensors
