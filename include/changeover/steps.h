// What a rank says of the numbered steps it ran over its live parameters (rule V6).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <changeover/types.h>

namespace changeover {

// One step that all ranks of the engine ran on one version.
struct StepRecord {
  uint64_t step = 0;
  VersionStamp version;
  uint64_t checksum = 0;  // Of the bytes this rank read (first half of their XXH3-128).
};

// The longest time in which no step ran, around one change of version: from the end of a step to
// the start of the next one, the largest such gap since the change before.
struct StepPause {
  std::optional<VersionStamp> from;  // None: the first version this rank ever stepped on.
  VersionStamp to;
  uint64_t step = 0;  // The first step on `to`.
  double seconds = 0;
};

// Times are seconds before "now", on the rank's own clock.
struct StepStatus {
  uint64_t current = 0;  // Number of the step in progress, or of the last one; 0 = none yet.
  uint64_t run = 0;      // Steps that all ranks of the engine ran.
  uint64_t cancelled = 0;
  uint64_t incomplete = 0;  // Run here, but not by every rank: they count for nobody.
  uint64_t mixed = 0;       // Steps that read other bytes than an earlier step on the same version.
  double pause_seconds_longest = 0;
  std::optional<double> last_step_age_seconds;  // None before the first step.
  std::string waiting_for;                      // Why no step runs now; empty while they run.
  std::vector<StepPause> pauses;                // The last 32 changes of version, oldest first.
  std::vector<StepRecord> recent;               // The last 256 steps, oldest first.
};

}  // namespace changeover
