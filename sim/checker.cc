#include "sim/checker.h"

#include <algorithm>

#include "sim/world.h"

namespace changeover::sim {

void Checker::on_decision(const RankName& rank, const protocol::Decision& decision) {
  const auto [entry, is_new] = decisions_.try_emplace({rank.engine, decision.id}, decision.commit);
  if (!is_new && entry->second != decision.commit) {
    fail("the decision on update " + decision.id.to_text() + " changed for " + rank.engine);
  }
  if (decision.commit && !yes_.contains({rank, decision.id})) {
    fail("commit was decided on update " + decision.id.to_text() + " without the yes of " +
         rank.to_text());
  }
}

void Checker::on_vote(const RankName& rank, const protocol::Vote& vote) {
  const auto [entry, is_new] = votes_.try_emplace({rank, vote.id, vote.incarnation}, vote.ready);
  if (!is_new && entry->second != vote.ready) {
    fail(rank.to_text() + " voted twice, and differently, on update " + vote.id.to_text());
  }
  if (vote.ready) {
    yes_.insert({rank, vote.id});
  }
}

void Checker::on_commit(const RankName& rank, const UpdateId& id, int64_t version) {
  const auto found = decisions_.find({rank.engine, id});
  if (found == decisions_.end() || !found->second) {
    fail(rank.to_text() + " committed update " + id.to_text() + ", nobody had decided so");
  }
  finished_[{rank.engine, version}].insert(rank.rank);
}

void Checker::on_enter(const RankName& rank, uint64_t life, int64_t version) {
  if (finished_[{rank.engine, version}].size() < static_cast<size_t>(kEngineSize)) {
    fail(rank.to_text() + " lets a step in on version " + std::to_string(version) +
         " before every rank of its engine has finished it");
  }
  int64_t& newest = served_.try_emplace({rank, life}, -1).first->second;
  if (version < newest) {
    fail(rank.to_text() + " went back from version " + std::to_string(newest) + " to " +
         std::to_string(version));
  }
  newest = version;
}

void Checker::on_step(const std::string& engine, const std::vector<InStep>& ranks, bool ending) {
  const std::string when = ending ? "a step that ends on " : "a step on ";
  for (const InStep& in : ranks) {
    if (in.version != ranks[0].version) {
      fail(when + engine + " runs on versions " + std::to_string(ranks[0].version) + " and " +
           std::to_string(in.version));
    }
    const auto& cold = model_.cold(in.version, in.rank.rank);
    if (!std::equal(cold.begin(), cold.end(), in.memory.begin(), in.memory.end())) {
      fail(when + in.rank.to_text() + " reads memory that is not version " +
           std::to_string(in.version));
    }
  }
  if (!ending) {
    ++steps_;
    last_[engine] = ranks[0].version;
  }
}

void Checker::fail(const std::string& what) {
  if (violation_.empty()) {
    violation_ = what;
  }
}

int64_t Checker::last_step(const std::string& engine) const {
  const auto found = last_.find(engine);
  return found == last_.end() ? -1 : found->second;
}

}  // namespace changeover::sim
