// Figures of whole updates, each beside its limit measured in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover::bench {

struct Options {
  int rounds = 5;      // Steady updates, after the first.
  bool small = false;  // A model of a few MB: to see that it runs, not for figures.
  Mode mode = Mode::kJournal;
  bool digests = true;
};

// One publisher process, one rank process, a dense model of Qwen3-0.6B's shapes. Mode and digests
// are part of the figure. Seconds are those of publish(): begin, stream, vote, release.
struct Figure {
  std::string name;  // "shm_1to1_dense"
  Mode mode = Mode::kJournal;
  bool digests = true;
  uint64_t payload_bytes = 0;
  uint64_t tensors = 0;
  double first_seconds = 0;  // The first update: rings, journal and pages are new.
  std::vector<double> seconds;
  std::vector<double> pause_seconds;  // What the rank reports: fence up to steps allowed.
  // The same bytes with nothing but the transfer, once before the updates and once after them.
  std::string limit;
  std::vector<double> limit_seconds;
  // Over the steady updates: peak resident memory above what was resident before them.
  uint64_t publisher_extra_bytes = 0;
  uint64_t rank_extra_bytes = 0;

  double bytes_per_second() const;        // Median of the steady updates.
  double limit_bytes_per_second() const;  // Median.
};

std::vector<std::string> names();

// kInvalidArgument for a name that is not in names(). Call it before any thread is started: it
// forks.
Result<Figure> run(const std::string& name, const Options& options);

}  // namespace changeover::bench
