// The replies of admin_protocol.h. The one file of the folder that includes nlohmann's JSON.
#include <nlohmann/json.hpp>

#include "reference/admin_protocol.h"

namespace changeover::reference {
namespace {

using Json = nlohmann::ordered_json;

// One line; what is no UTF-8 (a path, a peer's word) is replaced rather than refused.
std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json head(AdminRequest request, const RankName& rank) {
  return {{"format", 1},
          {"ok", true},
          {"request", admin_request_name(request)},
          {"engine", rank.engine},
          {"rank", rank.rank}};
}

Json json_of(const std::optional<VersionStamp>& version) {
  if (!version) {
    return nullptr;
  }
  return {{"epoch", version->epoch}, {"version", version->version}};
}

Json json_of(const std::optional<Digest>& digest) {
  return digest ? Json(digest->to_text()) : Json(nullptr);
}

Json json_of(const std::optional<ExpertShare>& experts) {
  if (!experts) {
    return nullptr;
  }
  return {{"ep_rank", experts->ep_rank},
          {"ep_size", experts->ep_size},
          {"tp_rank", experts->tp_rank},
          {"tp_size", experts->tp_size}};
}

Json json_of(const std::vector<DTypeOverride>& dtypes) {
  Json json = Json::array();
  for (const DTypeOverride& own : dtypes) {
    json.push_back({{"parameter", own.parameter},
                    {"held", dtype_name(own.held)},
                    {"source", own.source ? Json(dtype_name(*own.source)) : Json(nullptr)}});
  }
  return json;
}

// The code's name as users see it everywhere, and the message.
Json json_of(const Status& status) {
  return {{"code", code_name(status.code())}, {"message", status.message()}};
}

Json json_of(const StepStatus& steps, bool recent) {
  Json json = {{"current", steps.current},
               {"run", steps.run},
               {"cancelled", steps.cancelled},
               {"incomplete", steps.incomplete},
               {"mixed", steps.mixed},
               {"pause_seconds_longest", steps.pause_seconds_longest},
               {"last_step_age_seconds", nullptr},
               {"waiting_for", steps.waiting_for},
               {"pauses", Json::array()}};
  if (steps.last_step_age_seconds) {
    json["last_step_age_seconds"] = *steps.last_step_age_seconds;
  }
  for (const StepPause& pause : steps.pauses) {
    json["pauses"].push_back({{"from", json_of(pause.from)},
                              {"to", json_of(std::optional(pause.to))},
                              {"step", pause.step},
                              {"seconds", pause.seconds}});
  }
  if (recent) {
    json["recent"] = Json::array();
    for (const StepRecord& record : steps.recent) {
      char checksum[17];
      std::snprintf(checksum, sizeof checksum, "%016llx",
                    static_cast<unsigned long long>(record.checksum));
      json["recent"].push_back({{"step", record.step},
                                {"version", json_of(std::optional(record.version))},
                                {"checksum", checksum}});
    }
  }
  return json;
}

Json json_of_plan(const AdminFacts& facts) {
  const PlanOptions& options = facts.plan_options;
  return {{"digest", facts.plan_digest.to_text()},
          {"architecture", facts.architecture},
          {"tp_rank", options.tp_rank},
          {"tp_size", options.tp_size},
          {"generation", options.generation},
          {"experts", json_of(options.experts)},
          {"placement", Json::parse(expert_placement_to_json(options.placement))},
          {"source_form", options.source_form},
          {"dtypes", json_of(options.dtypes)},
          {"vocab_multiple", options.vocab_multiple},
          {"dtype", options.dtype ? Json(dtype_name(*options.dtype)) : Json(nullptr)},
          {"drop_segments", options.drop_segments},
          {"optional_segments", options.optional_segments},
          {"strip_prefixes", options.strip_prefixes},
          {"add_prefix", options.add_prefix},
          {"model_file", options.model_file.string()}};
}

}  // namespace

std::string admin_status_reply(const AdminFacts& facts, const RankStatus& status,
                               const StepStatus& steps) {
  Json json = head(AdminRequest::kStatus, status.rank);
  json["engine_size"] = facts.engine_size;
  json["job"] = facts.job;
  json["endpoint"] = facts.endpoint;
  json["incarnation"] = status.incarnation.to_text();
  json["version"] = json_of(status.version);
  json["digest"] = json_of(status.digest);
  json["fenced"] = status.fenced;
  json["fence_reason"] = status.fence_reason;
  json["gate_open"] = status.gate_open;
  json["phase"] = status.phase;
  json["connected"] = status.connected;
  json["updates_committed"] = status.updates_committed;
  json["updates_aborted"] = status.updates_aborted;
  json["last_error"] = status.last_error.ok() ? Json(nullptr) : json_of(status.last_error);
  json["steps"] = json_of(steps, false);
  return line(json);
}

std::string admin_steps_reply(const RankName& rank, const StepStatus& steps) {
  Json json = head(AdminRequest::kSteps, rank);
  json["steps"] = json_of(steps, true);
  return line(json);
}

std::string admin_digests_reply(const AdminFacts& facts, const RankName& rank,
                                const AdminDigests& digests) {
  Json json = head(AdminRequest::kDigests, rank);
  json["version"] = json_of(digests.version);
  json["fenced"] = digests.fenced;
  json["fence_reason"] = digests.fence_reason;
  json["plan"] = json_of_plan(facts);
  json["parameters"] = Json::array();
  for (size_t i = 0; i < digests.parameters.size() && i < digests.digests.size(); ++i) {
    const TensorSpec& spec = digests.parameters[i];
    json["parameters"].push_back({{"name", spec.name},
                                  {"dtype", dtype_name(spec.dtype)},
                                  {"shape", spec.shape},
                                  {"digest", digests.digests[i].to_text()}});
  }
  return line(json);
}

// The rank's part of an update report, in the form reports have everywhere (docs/report.md).
std::string admin_report_reply(const RankName& rank, const std::optional<RankReport>& report) {
  Json json = head(AdminRequest::kReport, rank);
  json["report"] = nullptr;
  if (report) {
    UpdateReport whole;
    whole.ranks.push_back(*report);
    const Json parsed = Json::parse(update_report_to_json(whole), nullptr, false);
    if (parsed.is_object() && parsed.contains("ranks") && parsed["ranks"].is_array() &&
        !parsed["ranks"].empty()) {
      json["report"] = parsed["ranks"][0];
    }
  }
  return line(json);
}

std::string admin_stop_reply(const RankName& rank) {
  return line(head(AdminRequest::kStop, rank));
}

std::string admin_error_reply(const Status& status) {
  return line({{"format", 1}, {"ok", false}, {"error", json_of(status)}});
}

}  // namespace changeover::reference
