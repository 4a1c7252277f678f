// Figures of whole updates, each beside the limit it is held to, measured in the same run.
// docs/bench.md says what each figure is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>

namespace changeover::bench {

struct Options {
  int rounds = 0;      // Steady updates per figure; 0 = each figure's own number.
  bool quick = false;  // Fewer rounds: all figures within a minute.
  bool small = false;  // Models of a few MB: to see that it runs, not for figures.
  // What is measured now, for a progress line.
  std::function<void(std::string_view figure)> on_figure;
};

struct Figure {
  std::string name;
  double value = 0;  // Median.
  std::string unit;
  bool higher_is_better = true;
  std::optional<double> limit;  // Median, in the same unit; none where the figure stands alone.
  int repeats = 0;
  // For people: what the limit is, and what `ratio` (`value` where there is no limit) should reach.
  std::string against;
  std::optional<double> target;

  std::optional<double> ratio() const;
  std::optional<bool> reached() const;
};

std::vector<std::string> names();

// The figures of these names (all of them where none is given), first updates among them as
// NAME_first. kInvalidArgument for a name that is not in names(). Call it before any thread is
// started: it forks.
Result<std::vector<Figure>> run(std::span<const std::string> names, const Options& options);

// Bandwidth over shared memory as one thing grows: GB/s of payload that each reader gets, and of
// the bare copies beside it.
struct Point {
  double x = 0;  // Bytes of each tensor, or readers.
  double value = 0;
  double limit = 0;
};
struct Sweeps {
  std::vector<Point> by_tensor_bytes;
  std::vector<Point> by_readers;
};
Result<Sweeps> sweep(const Options& options);

// "AMD EPYC ...", cores, memory: what figures depend on.
struct Machine {
  std::string processor;
  int cores = 0;
  uint64_t memory_bytes = 0;
  std::string kernel;
};
Machine machine();

}  // namespace changeover::bench
