// Reads what a rank answered to "digests": strictly, it comes from another process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover::reference {

struct HeldParameter {
  TensorSpec spec;
  Digest digest;
};

struct DigestsReply {
  RankName rank;
  std::optional<VersionStamp> version;
  bool fenced = false;
  std::string fence_reason;
  PlanOptions plan_options;
  Digest plan_digest;
  std::vector<HeldParameter> parameters;
};

// kCorrupt names the key that is missing or of the wrong kind. A reply that says "ok": false comes
// back as the Status the rank gave.
Result<DigestsReply> parse_digests_reply(std::string_view line);

}  // namespace changeover::reference
