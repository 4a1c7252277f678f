#include "reference/step_statistics.h"

#include <algorithm>

namespace changeover::reference {
namespace {

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StepStatistics::counted(const StepRun& run) {
  ++status_.run;
  check_bytes(run);
  measure_pause(run);
  recent_.push_back(run.record);
  if (recent_.size() > kRecentMax) {
    recent_.pop_front();
  }
  last_ = run;
}

// One version's bytes never change while it is whole, so two steps that read the same window of the
// same version and saw different bytes prove that one of them saw a mix.
void StepStatistics::check_bytes(const StepRun& run) {
  if (checksum_version_ != run.record.version) {
    checksum_version_ = run.record.version;
    checksums_.clear();
  }
  const auto [at, inserted] = checksums_.emplace(run.window, run.record.checksum);
  if (!inserted && at->second != run.record.checksum) {
    ++status_.mixed;
  }
}

void StepStatistics::measure_pause(const StepRun& run) {
  const bool first = !last_;
  if (!first) {
    const double gap = seconds(run.start - last_->end);
    gap_seconds_longest_ = std::max(gap_seconds_longest_, gap);
    status_.pause_seconds_longest = std::max(status_.pause_seconds_longest, gap);
  }
  if (!first && last_->record.version == run.record.version) {
    return;
  }
  StepPause pause;
  if (!first) {
    pause.from = last_->record.version;
  }
  pause.to = run.record.version;
  pause.step = run.record.step;
  pause.seconds = gap_seconds_longest_;
  pauses_.push_back(pause);
  if (pauses_.size() > kPausesMax) {
    pauses_.pop_front();
  }
  gap_seconds_longest_ = 0;
}

StepStatus StepStatistics::snapshot(Instant now) const {
  StepStatus copy = status_;
  copy.pauses.assign(pauses_.begin(), pauses_.end());
  copy.recent.assign(recent_.begin(), recent_.end());
  if (last_) {
    copy.last_step_age_seconds = seconds(now - last_->end);
  }
  return copy;
}

}  // namespace changeover::reference
