// Reports as JSON and back (docs/report.md).
#include <changeover/report.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "runtime/report_reader.h"

namespace changeover {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const std::optional<VersionStamp>& version) {
  return version ? Json{{"epoch", version->epoch}, {"version", version->version}} : Json();
}

Json to_json(const std::optional<Digest>& digest) {
  return digest ? Json(digest->to_text()) : Json();
}

Json to_json(const Status& status) {
  return status.ok() ? Json()
                     : Json{{"code", code_name(status.code())}, {"message", status.message()}};
}

Json to_json(const PhaseSeconds& seconds) {
  return {{"begin", seconds.begin}, {"receive", seconds.receive}, {"prepare", seconds.prepare},
          {"vote", seconds.vote},   {"finish", seconds.finish},   {"pause", seconds.pause}};
}

Json to_json(const RankReport& rank) {
  return {{"engine", rank.rank.engine},
          {"rank", rank.rank.rank},
          {"incarnation", rank.incarnation.to_text()},
          {"outcome", rank_outcome_name(rank.outcome)},
          {"version_before", to_json(rank.version_before)},
          {"version", to_json(rank.version)},
          {"digest", to_json(rank.digest)},
          {"digest_checked", rank.digest_checked},
          {"mode", mode_name(rank.mode)},
          {"way", rank.way},
          {"road", rank.road},
          {"road_reason", rank.road_reason},
          {"pieces_expected", rank.pieces_expected},
          {"pieces_landed", rank.pieces_landed},
          {"pieces_derived", rank.pieces_derived},
          {"bytes_received", rank.bytes_received},
          {"bytes_written", rank.bytes_written},
          {"buckets", rank.buckets},
          {"mode_memory_bytes", rank.mode_memory_bytes},
          {"seconds", to_json(rank.seconds)},
          {"cache_policy", rank.cache_policy},
          {"cache_result", rank.cache_result},
          {"fenced", rank.fenced},
          {"error", to_json(rank.error)}};
}

}  // namespace

std::string_view rank_outcome_name(RankOutcome outcome) {
  switch (outcome) {
    case RankOutcome::kCommitted:
      return "committed";
    case RankOutcome::kAlreadyThere:
      return "already_there";
    case RankOutcome::kRestored:
      return "restored";
    case RankOutcome::kFenced:
      return "fenced";
    case RankOutcome::kInDoubt:
      return "in_doubt";
    case RankOutcome::kLost:
      return "lost";
    case RankOutcome::kRefused:
      return "refused";
    case RankOutcome::kLeftOut:
      return "left_out";
  }
  return "unknown";
}

std::string update_report_to_json(const UpdateReport& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks) {
    ranks.push_back(to_json(rank));
  }
  const Json out = {
      {"format", 1},
      {"id", {{"coordinator", report.id.coordinator.to_text()}, {"counter", report.id.counter}}},
      {"version", to_json(report.version)},
      {"digest", to_json(report.digest)},
      {"digests_on", report.digests_on},
      {"status", to_json(report.status)},
      {"seconds", report.seconds},
      {"payload_bytes", report.payload_bytes},
      {"buckets", report.buckets},
      {"ranks", ranks}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<UpdateReport> parse_update_report(std::string_view json) {
  return runtime::read_update_report(json);
}

}  // namespace changeover
