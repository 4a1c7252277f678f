// Whole fleets under faults, by seed. CHANGEOVER_SIM_SEED sets the first seed (a commit's hash in
// continuous runs), CHANGEOVER_SIM_SEEDS how many; a failing seed is printed with its history and
// gives the same history again.
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "sim/fleet.h"

namespace changeover::sim {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 0);
}

std::string history(Model& model, uint64_t seed, Bug bug) {
  const Outcome again = Fleet(model, seed, bug, true).run();
  std::string text = "seed " + std::to_string(seed) + ": " + again.violation + "\n";
  const size_t first = again.trace.size() > 150 ? again.trace.size() - 150 : 0;
  for (size_t i = first; i < again.trace.size(); ++i) {
    text += again.trace[i] + "\n";
  }
  return text;
}

TEST(Simulation, NothingBreaksUnderFaultsAndTheNextUpdateCommits) {
  Model model;
  const uint64_t first = from_environment("CHANGEOVER_SIM_SEED", 1);
  const uint64_t count = from_environment("CHANGEOVER_SIM_SEEDS", 2000);
  Outcome sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = Fleet(model, seed, Bug::kNone, false).run();
    ASSERT_EQ(outcome.violation, "") << history(model, seed, Bug::kNone);
    sum.steps += outcome.steps;
    sum.updates += outcome.updates;
    sum.faults += outcome.faults;
    for (size_t i = 0; i < sum.outcomes.size(); ++i) {
      sum.outcomes[i] += outcome.outcomes[i];
    }
  }
  // A workload that does nothing would pass too.
  EXPECT_GT(sum.updates, 3 * count);
  EXPECT_GT(sum.faults, count);
  EXPECT_GT(sum.steps, 20 * count);
  for (RankOutcome outcome : {RankOutcome::kCommitted, RankOutcome::kRestored, RankOutcome::kFenced,
                              RankOutcome::kInDoubt}) {
    EXPECT_GT(sum.outcomes[static_cast<size_t>(outcome)], count / 20) << static_cast<int>(outcome);
  }
  std::printf("%llu seeds: %llu updates, %llu faults, %llu steps\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(sum.updates),
              static_cast<unsigned long long>(sum.faults),
              static_cast<unsigned long long>(sum.steps));
}

TEST(Simulation, OneSeedIsOneHistory) {
  Model model;
  for (uint64_t seed : {3u, 4u, 5u}) {
    const Outcome one = Fleet(model, seed, Bug::kNone, true).run();
    const Outcome two = Fleet(model, seed, Bug::kNone, true).run();
    EXPECT_EQ(one.trace, two.trace);
    EXPECT_GT(one.trace.size(), 20u);
  }
}

class PlantedBug : public ::testing::TestWithParam<int> {};

TEST_P(PlantedBug, IsFound) {
  constexpr uint64_t kSeedsMax = 3000;
  Model model;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    const Outcome outcome = Fleet(model, seed, static_cast<Bug>(GetParam()), false).run();
    if (!outcome.violation.empty()) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                  outcome.violation.c_str());
      return;
    }
  }
  FAIL() << "not found in " << kSeedsMax << " seeds";
}

INSTANTIATE_TEST_SUITE_P(Simulation, PlantedBug, ::testing::Range(1, kBugCount));

}  // namespace
}  // namespace changeover::sim
