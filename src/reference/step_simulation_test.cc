// Checked over many seeds: one version per step on all ranks, counted by all or by none, guards
// given back, and steps again once everything is well.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "reference/step_simulation_testing.h"

namespace changeover::reference {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A sanitizer's build runs fewer of them: the simulator's seeds, as sim/sim_test.cc says, over 20.
uint64_t seed_count() {
  const char* simulated = std::getenv("CHANGEOVER_SIM_SEEDS");
  const uint64_t count = simulated == nullptr ? 100 : std::strtoull(simulated, nullptr, 10) / 20;
  return std::clamp<uint64_t>(count, 10, 100);
}

void check(const Simulation& simulation) {
  const std::set<uint64_t> alive = simulation.alive();
  for (const auto& [key, lives] : simulation.counted) {
    if (key == simulation.counted.rbegin()->first) {
      break;  // Its close may still be on the way.
    }
    SCOPED_TRACE(key.second);
    const auto at = simulation.computed.find(key);
    ASSERT_NE(at, simulation.computed.end()) << "counted, never run";
    EXPECT_EQ(at->second.ranks.size(), size_t{Simulation::kRanks}) << "counted, not run by all";
    size_t ran = 0;
    size_t count = 0;
    for (const uint64_t life : at->second.lives) {
      ran += alive.contains(life) ? 1 : 0;
      count += alive.contains(life) && lives.contains(life) ? 1 : 0;
    }
    EXPECT_TRUE(count == 0 || count == ran) << count << " of " << ran << " living ranks count it";
  }
}

TEST(StepSimulation, V6_OneStepOneVersionOnAllRanksUnderFaults) {
  const uint64_t seeds = seed_count();
  uint64_t counted = 0;
  for (uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, static_cast<Style>(seed % 3));
    if (seed % 2 == 0) {
      simulation.repeat_messages();
    }
    simulation.chaos();
    simulation.run_for(seconds(15));
    simulation.heal();
    simulation.run_for(seconds(30));
    uint64_t healed[Simulation::kRanks];
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      healed[rank] = simulation.status(rank).run;
    }
    simulation.run_for(seconds(10));
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      const StepStatus status = simulation.status(rank);
      EXPECT_GT(status.run, healed[rank] + 50)
          << "rank " << rank << ": " << status.waiting_for << "; " << simulation.waiting_for();
      EXPECT_EQ(status.mixed, 0u);
    }
    check(simulation);
    counted += simulation.counted.size();
  }
  EXPECT_GT(counted, 10'000u);  // The faults leave room for steps, or nothing was tested.
}

// Staged: steps run until the last rank is ready, then all change at one boundary.
TEST(StepSimulation, V6_AllChangeOverAtTheBoundaryAfterTheLastIsStaged) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, Style::kStage);
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      simulation.rewrite(rank, 1);
    }
    simulation.run_for(seconds(1));
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      const uint64_t before = simulation.status(0).run;
      simulation.run_for(milliseconds(900));
      EXPECT_GT(simulation.status(0).run, before + 3) << "serving stopped before rank " << rank;
      EXPECT_FALSE(simulation.changing(0));
      EXPECT_FALSE(simulation.changing(1));
      simulation.stage(rank, 2);
    }
    simulation.run_for(milliseconds(700));
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      EXPECT_EQ(simulation.version(rank), (VersionStamp{0, 2}));
      ASSERT_FALSE(simulation.status(rank).recent.empty());
      EXPECT_EQ(simulation.status(rank).recent.back().version, (VersionStamp{0, 2}));
    }
    check(simulation);
  }
}

// An engine that cannot step, because a rank came back empty, would never come to a boundary.
TEST(StepSimulation, V6_AnEngineThatTakesNoStepIsAtABoundary) {
  Simulation simulation(4, Style::kStage);
  for (int rank = 0; rank < Simulation::kRanks; ++rank) {
    simulation.rewrite(rank, 1);
  }
  simulation.run_for(seconds(1));
  simulation.kill(2);
  simulation.start(2);
  simulation.run_for(seconds(2));
  simulation.stage(0, 2);
  simulation.stage(1, 2);
  simulation.run_for(milliseconds(1200));
  EXPECT_TRUE(simulation.changing(0));
  EXPECT_TRUE(simulation.changing(1));
}

// Swap: steps carry the old version while ranks change at their own times, so nothing pauses.
TEST(StepSimulation, V6_WhereStepsCarryTheirVersionNoneIsLeftOut) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, Style::kFlip);
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      simulation.rewrite(rank, 1);
    }
    simulation.run_for(seconds(2));
    for (int64_t version = 2; version < 8; ++version) {
      const StepStatus before = simulation.status(0);
      simulation.flip_all(version);
      simulation.run_for(seconds(1));
      const StepStatus after = simulation.status(0);
      EXPECT_LE(after.cancelled, before.cancelled + 2) << "the change itself, and no more";
      EXPECT_EQ(after.recent.back().version, (VersionStamp{0, version}));
    }
    check(simulation);
  }
}

TEST(StepSimulation, V6_RanksOnTwoVersionsRunNoStep) {
  Simulation simulation(1);
  simulation.rewrite(0, 3);
  simulation.rewrite(1, 3);
  simulation.rewrite(2, 4);
  simulation.run_for(seconds(5));
  EXPECT_TRUE(simulation.computed.empty());
  EXPECT_NE(simulation.waiting_for().find("rank 2 holds version 4, rank 0 version 3"),
            std::string::npos);
  EXPECT_LT(simulation.status(0).cancelled, 40u) << "asked in a loop";
  simulation.rewrite(2, 3);
  simulation.run_for(seconds(3));
  EXPECT_GT(simulation.counted.size(), 10u);
}

// Nobody is asked while one is missing, so a fence that fell meanwhile must not be named.
TEST(StepSimulation, AMissingRankIsNamedAloneOthersMayHaveChanged) {
  Simulation simulation(3);
  for (int rank = 0; rank < Simulation::kRanks; ++rank) {
    simulation.rewrite(rank, 1);
  }
  simulation.run_for(seconds(1));
  simulation.fence(1);
  simulation.run_for(seconds(2));
  EXPECT_NE(simulation.waiting_for().find("rank 1: fenced"), std::string::npos);
  simulation.kill(2);
  simulation.run_for(seconds(5));
  EXPECT_EQ(simulation.waiting_for(), "rank 2: not here");
}

TEST(StepSimulation, AFencedRankIsNotAskedInALoopAndSaysWhenItIsReady) {
  Simulation simulation(2);
  for (int rank = 0; rank < Simulation::kRanks; ++rank) {
    simulation.rewrite(rank, 1);
  }
  simulation.run_for(seconds(1));
  const uint64_t before = simulation.status(0).run;
  EXPECT_GT(before, 10u);
  simulation.fence(1);
  simulation.run_for(seconds(10));
  const StepStatus paused = simulation.status(0);
  EXPECT_LE(paused.run, before + 2);
  EXPECT_LT(paused.cancelled, 15u);
  EXPECT_NE(simulation.waiting_for().find("rank 1: fenced"), std::string::npos);
  simulation.rewrite(1, 1);
  simulation.run_for(milliseconds(150));
  EXPECT_GT(simulation.status(0).run, paused.run);
}

TEST(StepSimulation, R7_ASilentRankIsNamedAndNoGuardIsKept) {
  Simulation simulation(3);
  for (int rank = 0; rank < Simulation::kRanks; ++rank) {
    simulation.rewrite(rank, 1);
  }
  simulation.run_for(seconds(1));
  simulation.stall(2);
  simulation.run_for(seconds(8));
  EXPECT_FALSE(simulation.guard_held(0));
  EXPECT_FALSE(simulation.guard_held(1));
  EXPECT_NE(simulation.waiting_for().find("rank 2: silent for"), std::string::npos)
      << simulation.waiting_for();
  const uint64_t before = simulation.status(1).run;
  simulation.resume(2);
  simulation.run_for(seconds(1));
  EXPECT_GT(simulation.status(1).run, before);
}

TEST(StepSimulation, AFollowerWhoseConductorVanishedDropsItsGuard) {
  for (uint64_t seed = 1; seed <= seed_count(); ++seed) {
    Simulation simulation(seed);
    for (int rank = 0; rank < Simulation::kRanks; ++rank) {
      simulation.rewrite(rank, 1);
    }
    simulation.run_for(seconds(1) + milliseconds(3 * seed));
    simulation.stall(0);  // Its links stay up: only time can tell.
    simulation.run_for(seconds(3));
    EXPECT_FALSE(simulation.guard_held(1));
    EXPECT_FALSE(simulation.guard_held(2));
    simulation.resume(0);
    simulation.run_for(seconds(20));
    check(simulation);
  }
}

TEST(StepSimulation, ARestartedConductorGoesOnWithHigherNumbers) {
  Simulation simulation(5);
  for (int rank = 0; rank < Simulation::kRanks; ++rank) {
    simulation.rewrite(rank, 1);
  }
  simulation.run_for(seconds(1));
  const uint64_t before = simulation.status(1).current;
  simulation.kill(0);
  simulation.run_for(milliseconds(100));
  EXPECT_NE(simulation.status(1).waiting_for.find("rank 0"), std::string::npos);
  simulation.start(0);
  simulation.rewrite(0, 1);
  simulation.run_for(seconds(3));
  EXPECT_GT(simulation.status(0).run, 10u);
  ASSERT_FALSE(simulation.status(0).recent.empty());
  EXPECT_GT(simulation.status(0).recent.front().step, before);
  check(simulation);
}

}  // namespace
}  // namespace changeover::reference
