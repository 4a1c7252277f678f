// Counts what a rank's steps did: StepStatus without clocks or threads of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include <changeover/steps.h>
#include <changeover/types.h>

#include "base/instant.h"

namespace changeover::reference {

// A step this rank has run, until it is known whether all ranks did.
struct StepRun {
  StepRecord record;
  uint32_t window =
      0;  // Which turn of the parameters it read; same version and window, same bytes.
  Instant start;
  Instant end;
};

class StepStatistics {
 public:
  static constexpr size_t kPausesMax = 32;
  static constexpr size_t kRecentMax = 256;

  void begun(uint64_t step) { status_.current = step; }
  void cancelled() { ++status_.cancelled; }
  void incomplete() { ++status_.incomplete; }
  // The step counts: every rank of the engine ran it.
  void counted(const StepRun& run);

  // A copy with ages as of `now`.
  StepStatus snapshot(Instant now) const;
  std::optional<StepRecord> last_record() const {
    return last_ ? std::optional(last_->record) : std::nullopt;
  }
  uint64_t last_run() const { return last_ ? last_->record.step : 0; }

 private:
  void check_bytes(const StepRun& run);
  void measure_pause(const StepRun& run);

  StepStatus status_;
  std::optional<StepRun> last_;
  double gap_seconds_longest_ = 0;                // since the last change of version
  std::optional<VersionStamp> checksum_version_;  // what `checksums_` is of
  std::map<uint32_t, uint64_t> checksums_;        // by window; as many as there are windows
  std::deque<StepPause> pauses_;
  std::deque<StepRecord> recent_;
};

}  // namespace changeover::reference
