#include "cli/plan_options.h"

#include <string>

#include <fmt/core.h>

#include "cli/input_file.h"

namespace changeover::cli {
namespace {

Result<ExpertPlacement> placement_of(const PlanArguments& arguments) {
  ExpertPlacement placement;
  placement.redundant = arguments.redundant_experts;
  if (arguments.placement == "contiguous" || arguments.placement == "round_robin") {
    placement.kind = arguments.placement == "contiguous" ? ExpertPlacement::Kind::kContiguous
                                                         : ExpertPlacement::Kind::kRoundRobin;
    return placement;
  }
  if (arguments.redundant_experts != 0) {
    return Status(Code::kInvalidArgument,
                  "--redundant-experts goes with contiguous and round_robin; a table says itself "
                  "which experts stand in it several times");
  }
  auto text = read_input_file(arguments.placement);
  if (!text.ok()) {
    return text.status().with_context("--expert-placement, neither contiguous nor round_robin");
  }
  auto table = parse_expert_placement(*text);
  return table.ok() ? std::move(table) : table.status().with_context(arguments.placement);
}

// "mlp.gate.weight=float32", or with "bfloat16:float32" for what is sent and what is held.
Result<DTypeOverride> dtype_override_of(const std::string& text) {
  const size_t equals = text.rfind('=');
  const std::string name = text.substr(0, equals);
  const std::string types = equals == std::string::npos ? "" : text.substr(equals + 1);
  const size_t colon = types.find(':');
  const auto held = dtype_from_wire_name(types.substr(colon == std::string::npos ? 0 : colon + 1));
  const auto source = dtype_from_wire_name(types.substr(0, colon));
  if (name.empty() || !held || !source) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("--dtype {}: should be NAME=DTYPE or NAME=SENT:HELD, with dtypes such "
                    "as float32",
                    text));
  }
  DTypeOverride result{name, *held, std::nullopt};
  if (*source != *held) {
    result.source = source;
  }
  return result;
}

}  // namespace

Result<PlanOptions> plan_options(const PlanArguments& arguments) {
  PlanOptions options;
  CHANGEOVER_TRY(place_rank(arguments.shape, arguments.rank, options));
  CHANGEOVER_TRY_ASSIGN(options.placement, placement_of(arguments));
  for (const std::string& text : arguments.dtypes) {
    CHANGEOVER_TRY_ASSIGN(DTypeOverride own, dtype_override_of(text));
    options.dtypes.push_back(std::move(own));
  }
  options.source_form = arguments.source_form;
  options.vocab_multiple = arguments.vocab_multiple;
  options.drop_segments = arguments.drop_segments;
  options.optional_segments = arguments.optional_segments;
  options.strip_prefixes = arguments.strip_prefixes;
  options.add_prefix = arguments.add_prefix;
  options.model_file = arguments.model_file;
  return options;
}

}  // namespace changeover::cli
