#include <changeover/verify.h>

#include <nlohmann/json.hpp>

namespace changeover {

std::string verify_report_to_json(const VerifyReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = {{"format", 1},
               {"ok", report.same()},
               {"subject", report.subject},
               {"tp_rank", report.tp_rank},
               {"tp_size", report.tp_size},
               {"version", nullptr},
               {"fenced", report.fenced},
               {"fence_reason", report.fence_reason},
               {"parameters_compared", report.parameters_compared},
               {"differences", Json::array()}};
  if (report.version) {
    json["version"] = {{"epoch", report.version->epoch}, {"version", report.version->version}};
  }
  const auto text = [](const std::optional<Digest>& digest) {
    return digest ? Json(digest->to_text()) : Json(nullptr);
  };
  for (const VerifyDifference& difference : report.differences) {
    json["differences"].push_back({{"parameter", difference.parameter},
                                   {"held", text(difference.held)},
                                   {"expected", text(difference.expected)},
                                   {"detail", difference.detail}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace changeover
