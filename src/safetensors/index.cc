#include "safetensors/index.h"

#include <optional>

#include "base/json.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "os/file.h"

namespace changeover::safetensors {

namespace {

constexpr uint64_t kIndexBytesMax = 100'000'000;

Status corrupt(const std::string& message) {
  return {Code::kCorrupt, message};
}

bool is_plain_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && !name.starts_with('.') && name.size() <= 255;
}

Result<WeightMap> parse(std::string_view text) {
  CHANGEOVER_TRY_ASSIGN(const base::JsonDocument document,
                        base::JsonDocument::parse(text, {.bytes_max = kIndexBytesMax}));
  const std::optional<base::JsonValue> map = document.root().find("weight_map");
  if (!map || !map->is(base::JsonKind::kObject)) {
    return corrupt("it has no object \"weight_map\"");
  }
  WeightMap weight_map;
  for (const base::JsonMember member : map->members()) {
    const std::optional<std::string_view> shard = member.value.string();
    if (!shard || !is_plain_shard_name(*shard)) {
      return corrupt(
          "tensor " + base::quoted(member.key) + ": its shard " +
          (shard ? base::quoted(*shard) : std::string(base::json_kind_name(member.value.kind()))) +
          " is not a plain NAME.safetensors");
    }
    weight_map.emplace(member.key, *shard);
  }
  if (weight_map.empty()) {
    return corrupt("its weight_map is empty");
  }
  return weight_map;
}

}  // namespace

Result<WeightMap> read_index(const std::filesystem::path& path) {
  CHANGEOVER_TRY_ASSIGN(const std::string text, os::read_file(path.string(), kIndexBytesMax));
  Result<WeightMap> weight_map = parse(text);
  if (!weight_map.ok()) {
    return weight_map.status().with_context(path.string());
  }
  return weight_map;
}

std::string make_index(const WeightMap& weight_map, uint64_t bytes_total) {
  std::string json = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(bytes_total) +
                     "\n  },\n  \"weight_map\": {";
  bool first = true;
  for (const auto& [name, shard] : weight_map) {
    json += first ? "\n    " : ",\n    ";
    first = false;
    base::append_json_string(json, name);
    json += ": ";
    base::append_json_string(json, shard);
  }
  return json + "\n  }\n}\n";
}

}  // namespace changeover::safetensors
