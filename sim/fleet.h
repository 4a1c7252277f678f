// A whole fleet from one seed: a trainer, two engines of two ranks, their steps, and faults; then
// calm, and the next update must reach everyone.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/publisher_node.h"
#include "sim/rank_node.h"
#include "sim/world.h"

namespace changeover::sim {

struct Outcome {
  std::string violation;  // empty = nothing went wrong
  std::vector<std::string> trace;
  uint64_t steps = 0;
  uint64_t updates = 0;
  uint64_t faults = 0;
  std::array<uint64_t, 6> outcomes{};  // of ranks, by RankOutcome
};

class Fleet {
 public:
  Fleet(Model& model, uint64_t seed, Bug bug, bool tracing);
  Outcome run();

 private:
  struct Engine {
    std::string name;
    std::vector<std::unique_ptr<RankNode>> ranks;
    // The step in progress: who is in, with the version it was let in for and its half.
    struct Guest {
      uint64_t life = 0;
      update::FenceState::Pin pin;
    };
    std::vector<Guest> guests;
  };

  void keep_publishing();
  void on_update_start();
  void strike();
  void heal();
  bool settle();
  void await_update(int64_t version);

  void start_step(Engine& engine);
  void enter(Engine& engine, size_t index);
  void end_step(Engine& engine, bool ran);
  void schedule_step(Engine& engine);
  std::vector<Checker::InStep> guests(const Engine& engine,
                                      std::vector<std::vector<std::byte>>& memory) const;

  World world_;
  std::vector<Engine> engines_;
  std::vector<RankNode*> ranks_;
  PublisherNode publisher_;
  bool calm_ = false;
  Instant lively_until_;  // steps come quickly around updates, seldom otherwise
  Outcome outcome_;
};

}  // namespace changeover::sim
