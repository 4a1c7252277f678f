// What every part of a simulated fleet shares: time, randomness, the model, the checker, the trace.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <changeover/load_plan.h>

#include "base/prng.h"
#include "sim/checker.h"
#include "sim/scheduler.h"
#include "update/toy_model_testing.h"

namespace changeover::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr int32_t kEngineSize = 2;

// Bugs that a checker must find. Each is planted at a seam between the machines and the world, so
// production code carries no switch for it.
enum class Bug : uint8_t {
  kNone,
  kReleaseWithDecision,      // steps are let in before every rank has finished
  kRankGuessesCommit,        // a rank in doubt commits
  kOneYesIsEnough,           // the first yes counts for its engine's other ranks
  kFenceDoesNotDrain,        // memory is written under a step that runs
  kJournalLosesAByte,        // an abort does not restore everything
  kGateOpensAtFinish,        // a rank steps on its new version before the release
  kDecisionIsNeverRepeated,  // a rank that comes back in doubt stays so
  kSecondVote,               // a rank votes again, the other way
  kNoDeadlines,              // nobody is told that time has passed
  kDigestIgnored,            // damaged bytes are voted for
  kOldHalfIsReusedAtOnce,    // the next update writes into the half that a step still reads
  kNewHalfCanBeNamedAtOnce,  // steps may name a version before its release
};
inline constexpr int kBugCount = 13;

// One model for all seeds: plans per rank, weights and cold-loaded memory per version.
class Model {
 public:
  Model();
  const LoadPlan& plan(int32_t rank) const { return plans_[static_cast<size_t>(rank)]; }
  const std::vector<update::testing::Sent>& tensors(int64_t number);
  const Digest& digest(int64_t number);
  const std::vector<std::byte>& cold(int64_t number, int32_t rank);

 private:
  struct Version {
    std::vector<update::testing::Sent> tensors;
    Digest digest;
    std::vector<std::vector<std::byte>> cold;  // per rank
  };
  const Version& version(int64_t number);
  std::vector<LoadPlan> plans_;
  std::map<int64_t, Version> versions_;
};

struct World {
  World(uint64_t seed, Bug planted, Model& the_model)
      : random(seed), bug(planted), model(the_model), checker(the_model) {}

  // Uniform in [low, high].
  std::chrono::nanoseconds delay(std::chrono::nanoseconds low, std::chrono::nanoseconds high) {
    return std::chrono::nanoseconds(random.between(low.count(), high.count()));
  }
  Incarnation incarnation() {
    Incarnation drawn;
    random.fill(std::as_writable_bytes(std::span(drawn.bytes)));
    return drawn;
  }
  void note(const std::string& text) {
    if (tracing) {
      trace.push_back(std::to_string(scheduler.now().ns / 1'000'000) + " ms  " + text);
    }
  }

  Scheduler scheduler;
  base::Prng random;
  const Bug bug;
  Model& model;
  Checker checker;
  std::array<uint64_t, 6> outcomes{};  // how updates ended for ranks, by RankOutcome
  bool tracing = false;
  std::vector<std::string> trace;
};

}  // namespace changeover::sim
