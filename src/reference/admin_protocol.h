// What an operator may ask a rank, and what it answers: one JSON line each. docs/admin.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/report.h>
#include <changeover/status.h>
#include <changeover/steps.h>
#include <changeover/subscriber.h>

namespace changeover::reference {

inline constexpr size_t kAdminRequestBytesMax = 4096;

enum class AdminRequest : uint8_t { kStatus, kDigests, kReport, kSteps, kStop };
std::string_view admin_request_name(AdminRequest request);

// One line without its newline. kInvalidArgument names the key or the request it does not know,
// kCorrupt what is no JSON.
Result<AdminRequest> parse_admin_request(std::string_view line);

// What does not change while a rank lives.
struct AdminFacts {
  std::string job;
  std::string endpoint;
  int32_t engine_size = 1;
  PlanOptions plan_options;  // Enough to make the same plan from the same config.json.
  std::string architecture;
  Digest plan_digest;
};

// The live bytes of one moment.
struct AdminDigests {
  std::optional<VersionStamp> version;
  bool fenced = false;  // No guard was to be had: the bytes are whole only if `version` is there.
  std::string fence_reason;
  std::vector<TensorSpec> parameters;
  std::vector<Digest> digests;  // One per parameter.
};

// Replies, each one line without its newline.
std::string admin_status_reply(const AdminFacts& facts, const RankStatus& status,
                               const StepStatus& steps);
std::string admin_steps_reply(const RankName& rank, const StepStatus& steps);
std::string admin_digests_reply(const AdminFacts& facts, const RankName& rank,
                                const AdminDigests& digests);
std::string admin_report_reply(const RankName& rank, const std::optional<RankReport>& report);
std::string admin_stop_reply(const RankName& rank);
std::string admin_error_reply(const Status& status);

}  // namespace changeover::reference
