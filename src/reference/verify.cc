#include <map>
#include <utility>

#include <changeover/admin.h>
#include <changeover/checkpoint.h>
#include <changeover/parameter_store.h>
#include <changeover/verify.h>

#include <fmt/format.h>

#include "reference/digests_reply.h"

namespace changeover {
namespace {

using reference::DigestsReply;
using reference::HeldParameter;

std::filesystem::path folder_of(const std::filesystem::path& model) {
  std::error_code ignored;
  return std::filesystem::is_directory(model, ignored) ? model : model.parent_path();
}

Result<std::unique_ptr<ParameterStore>> load_cold(const LoadPlan& plan,
                                                  const std::filesystem::path& checkpoint) {
  CHANGEOVER_TRY_ASSIGN(auto opened, Checkpoint::open(checkpoint));
  auto store = cold_load(plan, *opened);
  if (!store.ok()) {
    return store.status().with_context(checkpoint.string());
  }
  return store;
}

std::string layout_text(const TensorSpec& spec) {
  return fmt::format("{} [{}]", dtype_name(spec.dtype), fmt::join(spec.shape, ", "));
}

void compare(const std::vector<HeldParameter>& held, const ParameterStore& expected,
             VerifyReport& report) {
  std::map<std::string_view, const HeldParameter*> by_name;
  for (const HeldParameter& parameter : held) {
    by_name[parameter.spec.name] = &parameter;
  }
  const std::vector<Digest> digests = live_digests(expected);
  const auto parameters = expected.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TensorSpec& spec = parameters[i].spec;
    const auto at = by_name.find(spec.name);
    ++report.parameters_compared;
    if (at == by_name.end()) {
      report.differences.push_back({spec.name, std::nullopt, digests[i], "not held"});
      continue;
    }
    const HeldParameter& own = *at->second;
    by_name.erase(at);
    if (own.spec != spec) {
      report.differences.push_back(
          {spec.name, own.digest, digests[i],
           fmt::format("{} where {} is expected", layout_text(own.spec), layout_text(spec))});
    } else if (own.digest != digests[i]) {
      report.differences.push_back({spec.name, own.digest, digests[i], ""});
    }
  }
  for (const auto& [name, parameter] : by_name) {
    report.differences.push_back(
        {std::string(name), parameter->digest, std::nullopt, "the cold load does not have it"});
  }
}

}  // namespace

Result<VerifyReport> verify_rank(std::string_view admin, const std::filesystem::path& model,
                                 std::chrono::nanoseconds timeout) {
  CHANGEOVER_TRY_ASSIGN(const std::string line,
                        admin_request(admin, R"({"format":1,"request":"digests"})", timeout));
  auto parsed = reference::parse_digests_reply(line);
  if (!parsed.ok()) {
    return parsed.status().with_context(admin);
  }
  const DigestsReply& reply = *parsed;
  CHANGEOVER_TRY_ASSIGN(const LoadPlan plan, make_load_plan(model, reply.plan_options));
  if (const Digest own = load_plan_digest(plan); own != reply.plan_digest) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("rank {} follows plan {}, {} gives plan {}: is that the rank's model?",
                    reply.rank.to_text(), reply.plan_digest.to_text(), model.string(),
                    own.to_text()));
  }
  CHANGEOVER_TRY_ASSIGN(const auto expected, load_cold(plan, folder_of(model)));
  VerifyReport report;
  report.subject = fmt::format("{} at {}", reply.rank.to_text(), admin);
  report.tp_rank = plan.tp_rank;
  report.tp_size = plan.tp_size;
  report.version = reply.version;
  report.fenced = reply.fenced;
  report.fence_reason = reply.fence_reason;
  compare(reply.parameters, *expected, report);
  return report;
}

Result<VerifyReport> verify_folder(const std::filesystem::path& subject,
                                   const std::filesystem::path& model, const PlanOptions& options) {
  CHANGEOVER_TRY_ASSIGN(const LoadPlan plan, make_load_plan(model, options));
  CHANGEOVER_TRY_ASSIGN(const auto expected, load_cold(plan, folder_of(model)));
  CHANGEOVER_TRY_ASSIGN(const auto held, load_cold(plan, subject));
  std::vector<HeldParameter> parameters;
  const std::vector<Digest> digests = live_digests(*held);
  for (size_t i = 0; i < digests.size(); ++i) {
    parameters.push_back({held->parameters()[i].spec, digests[i]});
  }
  VerifyReport report;
  report.subject = subject.string();
  report.tp_rank = plan.tp_rank;
  report.tp_size = plan.tp_size;
  compare(parameters, *expected, report);
  return report;
}

}  // namespace changeover
