// From a model file and a config to the load plan of one rank.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include <changeover/load_plan.h>
#include <changeover/status.h>

#include "base/json.h"
#include "model/model_file.h"

namespace changeover::model {

// The plan that `file` gives for this config, not yet proved. Also for files that are parse_only:
// that they give provable plans is how the language is tested.
Result<LoadPlan> build_plan(const ModelFile& file, base::JsonValue config,
                            std::string_view architecture, const PlanOptions& options);

// The same from texts: finds the architecture in the config, its model file among `model_files`,
// refuses parse_only files by name, and proves the plan.
Result<LoadPlan> plan_from_text(
    std::string_view config_json,
    std::span<const std::pair<std::string_view, std::string_view>> model_files,
    const PlanOptions& options);

}  // namespace changeover::model
