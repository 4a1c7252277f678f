// Bandwidth as tensors or readers grow, for the plot.
#include <algorithm>
#include <vector>

#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr uint64_t kTensorsMax = 20000;

double rate(uint64_t bytes, const std::vector<double>& seconds) {
  return static_cast<double>(bytes) / median(seconds) * 1e-9;
}

Result<Point> measure(const Model& model, const FleetOptions& options, double x, int rounds) {
  CHANGEOVER_TRY_ASSIGN(const auto fleet, Fleet::start(model, options));
  std::vector<double> ours;
  std::vector<double> bare;
  for (int round = -1; round < rounds; ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto report, fleet->publish(false));
    CHANGEOVER_TRY_ASSIGN(const double limit, fleet->limit_seconds());
    if (round >= 0) {  // The first update makes rings and pages.
      ours.push_back(report.seconds);
      bare.push_back(limit);
    }
  }
  return Point{x, rate(model.bytes, ours), rate(model.bytes, bare)};
}

}  // namespace

Result<Sweeps> sweep(const Options& options) {
  Models models(options.small);
  const uint64_t total = options.small ? 4ull << 20 : 256ull << 20;
  const int rounds = options.rounds > 0 ? options.rounds : 5;
  Sweeps sweeps;
  // The largest first: the others use its bytes.
  CHANGEOVER_TRY(models.even(1, total).status());
  for (uint64_t bytes = 1 << 10; bytes <= total / 4; bytes *= 4) {
    if (options.on_figure) {
      options.on_figure("bandwidth by tensor size");
    }
    const uint64_t count = std::min(kTensorsMax, total / bytes);
    CHANGEOVER_TRY_ASSIGN(const Model* model, models.even(count, bytes));
    CHANGEOVER_TRY_ASSIGN(const Point point,
                          measure(*model, {}, static_cast<double>(bytes), rounds));
    sweeps.by_tensor_bytes.push_back(point);
  }
  CHANGEOVER_TRY_ASSIGN(const Model* model, models.even(64, total / 64));
  for (const int readers : {1, 2, 3, 4, 6, 8}) {
    if (options.on_figure) {
      options.on_figure("bandwidth by readers");
    }
    CHANGEOVER_TRY_ASSIGN(const Point point, measure(*model, {.ranks = readers}, readers, rounds));
    sweeps.by_readers.push_back(point);
  }
  return sweeps;
}

}  // namespace changeover::bench
