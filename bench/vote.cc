// From the first yes to the last rank finished, among the six ranks of one engine.
#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr int kRanks = 6;

Status measure(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.even(64, 1024));
  CHANGEOVER_TRY_ASSIGN(const auto fleet,
                        Fleet::start(*model, {.ranks = kRanks, .one_engine = true}));
  CHANGEOVER_TRY(fleet->publish(true).status());
  CHANGEOVER_TRY(fleet->bare_vote_seconds().status());
  for (int round = 0; round < context.rounds(51); ++round) {
    CHANGEOVER_TRY_ASSIGN(const double bare, fleet->bare_vote_seconds());
    recorder.add_limit("vote_6_ranks", bare * 1e6);
    CHANGEOVER_TRY_ASSIGN(const auto report, fleet->publish(true));
    recorder.add("vote_6_ranks", vote_seconds(report) * 1e6);
  }
  return {};
}

constexpr FigureSpec kVote[] = {
    {"vote_6_ranks", "us", false, "the same messages on bare socket pairs", 3.0},
};
constexpr Family kFamilies[] = {{kVote, measure}};

}  // namespace

std::span<const Family> vote_families() {
  return kFamilies;
}

}  // namespace changeover::bench
