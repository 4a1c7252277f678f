// From the text of a config.json to a proved plan: finds the architecture's model file.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/utf8.h"
#include "model/plan_builder.h"
#include "model/plan_limits.h"

namespace changeover::model {
namespace {

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

// config.json's "architectures": one string.
Result<std::string> architecture_of(base::JsonValue config) {
  const auto list = config.find("architectures");
  if (!list) {
    return invalid("config.json has no key \"architectures\"; add it, as [\"LlamaForCausalLM\"]");
  }
  if (!list->is(base::JsonKind::kArray) || list->size() != 1 ||
      !(*list->elements().begin()).string()) {
    return invalid("config.json: \"architectures\" should be an array of one string");
  }
  return std::string(*(*list->elements().begin()).string());
}

}  // namespace

Result<LoadPlan> plan_from_text(
    std::string_view config_json,
    std::span<const std::pair<std::string_view, std::string_view>> model_files,
    const PlanOptions& options) {
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(config_json, {.bytes_max = kConfigBytesMax, .depth_max = 64});
  if (!document.ok()) {
    return document.status().with_context("config.json");
  }
  CHANGEOVER_TRY_ASSIGN(const std::string architecture, architecture_of(document->root()));
  std::vector<std::string> known;
  for (const auto& [name, text] : model_files) {
    Result<ModelFile> file = ModelFile::parse(text);
    CHANGEOVER_TRY(file.status().with_context(name));
    const auto& list = file->architectures;
    if (std::find(list.begin(), list.end(), architecture) == list.end()) {
      if (file->parse_only.empty()) {
        known.insert(known.end(), list.begin(), list.end());
      }
      continue;
    }
    if (!file->parse_only.empty()) {
      return Status(Code::kRefused,
                    fmt::format("architecture {}: its model file {} is parse_only, no plan can be "
                                "made from it yet: {}",
                                base::quoted(architecture), name, file->parse_only));
    }
    Result<LoadPlan> plan = build_plan(*file, document->root(), architecture, options);
    CHANGEOVER_TRY(plan.status().with_context(architecture));
    CHANGEOVER_TRY(prove_load_plan(*plan).with_context(architecture));
    return plan;
  }
  std::sort(known.begin(), known.end());
  return invalid(
      fmt::format("architecture {} is not known; known are {}; give a model file of "
                  "your own (docs/models.md)",
                  base::quoted(architecture), fmt::join(known, ", ")));
}

}  // namespace changeover::model
