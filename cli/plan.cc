// changeover plan: one rank's load plan, or the proof of a plan that an engine wrote.
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <changeover/dtype.h>
#include <changeover/load_plan.h>
#include <changeover/tensor.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_options.h"
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
    fmt::print(R"({{"format":1,"architectures":[{}]}})"
               "\n",
               rows);
  } else {
    fmt::print("{}", table.to_string());
  }
  return kExitOk;
}

Result<LoadPlan> read_plan(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Status(Code::kInvalidArgument, fmt::format("{}: cannot be read", path));
  }
  const std::string text(std::istreambuf_iterator<char>(in), {});
  auto plan = parse_load_plan(text);
  if (!plan.ok()) {
    return plan.status().with_context(path);
  }
  return plan;
}

// "q <- model.layers.0.self_attn.q_proj.weight" for each piece of a parameter, and its padding.
std::string filled_from(const LoadPlan& plan, uint32_t parameter) {
  std::string text;
  std::set<std::string> seen;
  for (const Piece& piece : plan.pieces) {
    const std::string& name = plan.sources[piece.source].spec.name;
    if (piece.parameter != parameter || !seen.insert(piece.part + "/" + name).second) {
      continue;
    }
    text += (text.empty() ? "" : " + ") + (piece.part.empty() ? "" : piece.part + "=") +
            printable(name);
  }
  for (const Padding& padding : plan.paddings) {
    if (padding.parameter == parameter) {
      int64_t elements = 1;
      for (const View::Dim& dim : padding.view.dims) {
        elements *= dim.extent;
      }
      text += fmt::format(" + {} elements of padding", elements);
    }
  }
  return text;
}

void print_plan(const LoadPlan& plan) {
  Table table({"parameter", "dtype", "shape", "filled from"});
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < plan.parameters.size(); ++i) {
    const TensorSpec& spec = plan.parameters[i];
    const auto size = byte_count(spec.dtype, spec.shape);
    bytes += size.ok() ? static_cast<uint64_t>(*size) : 0;
    table.add({printable(spec.name), std::string(dtype_name(spec.dtype)), shape_text(spec.shape),
               filled_from(plan, i)});
  }
  fmt::print("{}", table.to_string());
  for (const std::string& name : plan.ignorable) {
    fmt::print("may be received and dropped: {}\n", printable(name));
  }
  fmt::print("{}, rank {} of {}: {} parameters, {}, from {} tensors in {} pieces\n",
             plan.architecture.empty() ? "plan" : plan.architecture, plan.tp_rank, plan.tp_size,
             plan.parameters.size(), human_bytes(bytes), plan.sources.size(), plan.pieces.size());
  fmt::print("proved: the pieces fill every parameter exactly once; digest {}\n",
             load_plan_digest(plan).to_text());
}

}  // namespace

int run(const ShowPlanArguments& arguments) {
  if (arguments.list) {
    return list_model_files(arguments.json);
  }
  const auto plan = arguments.plan_file.empty()
                        ? make_load_plan(arguments.model, plan_options(arguments.plan))
                        : read_plan(arguments.plan_file);
  if (!plan.ok()) {
    return fail(plan.status(), arguments.json);
  }
  if (arguments.json) {
    fmt::print("{}\n", load_plan_to_json(*plan));
  } else {
    print_plan(*plan);
  }
  return kExitOk;
}

}  // namespace changeover::cli
