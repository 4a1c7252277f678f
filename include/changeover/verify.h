// Is what a rank (or a folder) holds byte for byte what a checkpoint would give it?
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

struct VerifyDifference {
  std::string parameter;
  std::optional<Digest> held;      // None: the subject does not have it.
  std::optional<Digest> expected;  // None: the cold load does not have it.
  std::string detail;              // Of two dtypes or shapes, both; else empty.
};

struct VerifyReport {
  std::string subject;  // "engine-a/2 at unix:/run/a2" or the folder.
  int32_t tp_rank = 0;
  int32_t tp_size = 1;
  std::optional<VersionStamp> version;  // Of a rank, where it holds one.
  bool fenced = false;                  // A rank that does not serve can still be compared.
  std::string fence_reason;
  uint64_t parameters_compared = 0;
  std::vector<VerifyDifference> differences;  // In the plan's order.
  bool same() const { return differences.empty() && parameters_compared > 0; }
};

// Asks the rank behind this admin socket for its plan's facts and its digests, builds the same plan
// from `model` (config.json beside the checkpoint), cold-loads it and compares each parameter.
// The Result is an error only where nothing could be compared: nobody there, another plan
// (kInvalidArgument with both digests), a rank that is receiving just now (kTryLater).
Result<VerifyReport> verify_rank(std::string_view admin, const std::filesystem::path& model,
                                 std::chrono::nanoseconds timeout = std::chrono::seconds(30));

// The same for a folder (or file): cold loads of both under one plan, made from `model`.
Result<VerifyReport> verify_folder(const std::filesystem::path& subject,
                                   const std::filesystem::path& model,
                                   const PlanOptions& options = {});

std::string verify_report_to_json(const VerifyReport& report);  // "format": 1, docs/admin.md

}  // namespace changeover
