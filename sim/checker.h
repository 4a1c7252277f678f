// What must hold whatever happens. Knows the workload only by what it is told, and never the
// machines' own opinion of themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace changeover::sim {

class Model;

class Checker {
 public:
  explicit Checker(Model& model) : model_(model) {}

  // A coordinator sent this decision to a rank: never another one before, and a commit only to one
  // that has voted yes itself (rules V1, V2).
  void on_decision(const RankName& rank, const protocol::Decision& decision);
  // A rank's process sent this vote: the first, or the same again (rule V2).
  void on_vote(const RankName& rank, const protocol::Vote& vote);
  // A rank committed: its engine's decision said so (rules V1, V5).
  void on_commit(const RankName& rank, const UpdateId& id, int64_t version);
  // A rank's fence and gate let a step in: every rank of the engine has finished that version once
  // (rule V6), and this process never served a newer one (T1).
  void on_enter(const RankName& rank, uint64_t life, int64_t version);

  struct InStep {
    RankName rank;
    int64_t version = 0;
    std::span<const std::byte> memory;
  };
  // A step of an engine begins (or ends) with these versions, on this memory: one version, whole
  // and unchanged (V6, T5, T7, T11).
  void on_step(const std::string& engine, const std::vector<InStep>& ranks, bool ending);

  void fail(const std::string& what);
  const std::string& violation() const { return violation_; }
  uint64_t steps() const { return steps_; }
  // The version of the engine's last step; -1 before the first.
  int64_t last_step(const std::string& engine) const;

 private:
  Model& model_;
  std::string violation_;
  std::map<std::pair<std::string, UpdateId>, bool> decisions_;
  std::map<std::tuple<RankName, UpdateId, Incarnation>, bool> votes_;
  std::set<std::pair<RankName, UpdateId>> yes_;
  std::map<std::pair<std::string, int64_t>, std::set<int32_t>> finished_;
  std::map<std::pair<RankName, uint64_t>, int64_t> served_;
  std::map<std::string, int64_t> last_;
  uint64_t steps_ = 0;
};

}  // namespace changeover::sim
