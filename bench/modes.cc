// What the modes cost an engine that serves: how long it stands still.
#include <algorithm>

#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr double kMicro = 1e6;

// In turns, so that both meet the same machine. A rank's clock: fence up to finished.
Status measure_pause(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.dense());
  CHANGEOVER_TRY_ASSIGN(const auto fleets, Fleet::start_two(*model, {.mode = Mode::kStaged}, *model,
                                                            {.mode = Mode::kInPlace}));
  CHANGEOVER_TRY(fleets.first->publish(false).status());
  CHANGEOVER_TRY(fleets.second->publish(false).status());
  for (int round = 0; round < context.rounds(7); ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto in_place, fleets.second->publish(false));
    recorder.add_limit("pause_staged", in_place.ranks[0].seconds.pause * kMicro);
    CHANGEOVER_TRY_ASSIGN(const auto staged, fleets.first->publish(false));
    recorder.add("pause_staged", staged.ranks[0].seconds.pause * kMicro);
  }
  return {};
}

// From the decision's arrival at a rank to the new half being the live one.
Status measure_flip(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.even(64, 1024));
  CHANGEOVER_TRY_ASSIGN(const auto fleet, Fleet::start(*model, {.mode = Mode::kSwap}));
  CHANGEOVER_TRY(fleet->publish(false).status());
  std::vector<double> seconds;
  for (int round = 0; round < context.rounds(1000); ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto report, fleet->publish(false));
    seconds.push_back(report.ranks[0].seconds.finish);
  }
  std::sort(seconds.begin(), seconds.end());
  recorder.add("flip_swap", seconds[seconds.size() * 99 / 100] * kMicro);
  return {};
}

constexpr FigureSpec kPause[] = {
    {"pause_staged", "us", false, "the same update in place, which is fenced all along", 0.4},
};
constexpr FigureSpec kFlip[] = {{"flip_swap", "us", false, "", 50.0}};
constexpr Family kFamilies[] = {{kPause, measure_pause}, {kFlip, measure_flip}};

}  // namespace

std::span<const Family> mode_families() {
  return kFamilies;
}

}  // namespace changeover::bench
