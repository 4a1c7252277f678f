// changeover plan: one rank's load plan, or the proof of a plan that an engine wrote.
#include <string>
#include <vector>

#include <changeover/dtype.h>
#include <changeover/load_plan.h>
#include <changeover/tensor.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/input_file.h"
#include "cli/plan_options.h"
#include "cli/plan_text.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

int list_model_files(bool json) {
  std::string rows;
  Table table({"architecture", "plans"});
  for (const ModelFileInfo& info : model_files()) {
    rows += fmt::format(R"({}{{"architecture":"{}","parse_only":{}}})", rows.empty() ? "" : ",",
                        info.architecture, info.parse_only);
    table.add(
        {info.architecture, info.parse_only ? "described only, cannot be planned yet" : "yes"});
  }
  if (json) {
    emit(R"({{"format":1,"architectures":[{}]}})"
         "\n",
         rows);
  } else {
    emit("{}", table.to_string());
  }
  return kExitOk;
}

Result<LoadPlan> read_plan(const std::string& path) {
  CHANGEOVER_TRY_ASSIGN(const std::string text, read_input_file(path));
  auto plan = parse_load_plan(text);
  if (!plan.ok()) {
    return plan.status().with_context(path);
  }
  return plan;
}

void print_plan(const LoadPlan& plan) {
  Table table({"parameter", "dtype", "shape", "filled from"});
  std::vector<std::vector<uint32_t>> pieces(plan.parameters.size());
  for (uint32_t i = 0; i < plan.pieces.size(); ++i) {
    pieces[plan.pieces[i].parameter].push_back(i);
  }
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < plan.parameters.size(); ++i) {
    const TensorSpec& spec = plan.parameters[i];
    const auto size = byte_count(spec.dtype, spec.shape);
    bytes += size.ok() ? static_cast<uint64_t>(*size) : 0;
    table.add({printable(spec.name), std::string(dtype_name(spec.dtype)), shape_text(spec.shape),
               filled_from(plan, i, pieces[i])});
  }
  emit("{}", table.to_string());
  for (const std::string& name : folded(plan.ignorable)) {
    emit("may be received and dropped: {}\n", printable(name));
  }
  emit("{}, rank {} of {}: {} parameters, {}, from {} tensors in {} pieces\n",
       plan.architecture.empty() ? "plan" : plan.architecture, plan.tp_rank, plan.tp_size,
       plan.parameters.size(), human_bytes(bytes), plan.sources.size(), plan.pieces.size());
  const ExpertShare& experts = plan.experts;
  if (experts.ep_size > 1 || experts.tp_size != plan.tp_size) {
    emit("experts: those of group {} of {}, each cut over {} rank{}, share {}\n", experts.ep_rank,
         experts.ep_size, experts.tp_size, experts.tp_size == 1 ? "" : "s", experts.tp_rank);
  }
  emit("proved: the pieces fill every parameter exactly once; digest {}\n",
       load_plan_digest(plan).to_text());
}

}  // namespace

int run(const ShowPlanArguments& arguments) {
  if (arguments.list) {
    return list_model_files(arguments.json);
  }
  const auto options = plan_options(arguments.plan);
  if (!options.ok()) {
    return fail(options.status(), arguments.json);
  }
  const auto plan = arguments.plan_file.empty() ? make_load_plan(arguments.model, *options)
                                                : read_plan(arguments.plan_file);
  if (!plan.ok()) {
    return fail(plan.status(), arguments.json);
  }
  if (arguments.json) {
    emit("{}\n", load_plan_to_json(*plan));
  } else {
    print_plan(*plan);
  }
  return kExitOk;
}

}  // namespace changeover::cli
