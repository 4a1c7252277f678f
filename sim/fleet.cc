#include "sim/fleet.h"

#include <algorithm>

namespace changeover::sim {

Fleet::Fleet(Model& model, uint64_t seed, Bug bug, bool tracing)
    : world_(seed, bug, model), publisher_(world_, [this] { on_update_start(); }) {
  world_.tracing = tracing;
  for (const char* name : {"a", "b"}) {
    Engine& engine = engines_.emplace_back();
    engine.name = name;
    constexpr Mode kModes[] = {Mode::kJournal, Mode::kJournal, Mode::kInPlace, Mode::kStaged,
                               Mode::kSwap};
    const Mode mode = kModes[world_.random.below(std::size(kModes))];
    for (int32_t rank = 0; rank < kEngineSize; ++rank) {
      engine.ranks.push_back(std::make_unique<RankNode>(world_, RankName{name, rank}, mode,
                                                        [this] { return publisher_.accept(); }));
      ranks_.push_back(engine.ranks.back().get());
    }
  }
}

Outcome Fleet::run() {
  publisher_.start();
  for (RankNode* rank : ranks_) {
    rank->start();
  }
  for (Engine& engine : engines_) {
    schedule_step(engine);
  }
  keep_publishing();
  world_.scheduler.run_until(Instant() + seconds(20));
  heal();
  if (world_.checker.violation().empty() && settle()) {
    const int64_t version = publisher_.trained() + 1;
    publisher_.publish(version);
    await_update(version);
  }
  outcome_.violation = world_.checker.violation();
  outcome_.trace = std::move(world_.trace);
  outcome_.outcomes = world_.outcomes;
  outcome_.steps = world_.checker.steps();
  return outcome_;
}

// --- the workload

void Fleet::keep_publishing() {
  world_.scheduler.after(world_.delay(milliseconds(100), milliseconds(2500)), [this] {
    if (calm_) {
      return;
    }
    if (publisher_.alive() && !publisher_.busy() && publisher_.complete_ranks() > 0) {
      publisher_.publish(publisher_.next_version());
    }
    keep_publishing();
  });
}

void Fleet::on_update_start() {
  ++outcome_.updates;
  lively_until_ = world_.scheduler.now() + milliseconds(400);
  if (!calm_ && world_.random.chance(0.6)) {
    const int count = world_.random.chance(0.3) ? 2 : 1;
    for (int i = 0; i < count; ++i) {
      world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(160)),
                             [this] { strike(); });
    }
  }
}

void Fleet::strike() {
  if (calm_) {
    return;
  }
  ++outcome_.faults;
  RankNode* rank = ranks_[world_.random.below(ranks_.size())];
  const Status why(Code::kUnavailable, "the road broke");
  switch (world_.random.below(7)) {
    case 0:
      rank->crash();
      world_.scheduler.after(world_.delay(milliseconds(10), seconds(4)), [rank] { rank->start(); });
      break;
    case 1:
      publisher_.crash();
      world_.scheduler.after(world_.delay(milliseconds(10), seconds(4)),
                             [this] { publisher_.start(); });
      break;
    case 2:
      rank->cut_link(why);
      break;
    case 3:
      if (rank->alive() && rank->link()) {
        publisher_.on_data_lost(rank->link()->id(), why);
        rank->cut_data(why);
      }
      break;
    case 4: {
      rank->stop();
      const auto long_stop = world_.random.chance(0.3);
      world_.scheduler.after(long_stop ? world_.delay(seconds(5), seconds(15))
                                       : world_.delay(milliseconds(1), milliseconds(200)),
                             [rank] { rank->resume(); });
      break;
    }
    default:
      if (rank->alive() && rank->link()) {
        publisher_.damage(rank->link()->id(), world_.random.chance(0.4));
      }
  }
}

void Fleet::heal() {
  world_.note("--- calm");
  calm_ = true;
  publisher_.forget_damage();
  publisher_.start();
  for (RankNode* rank : ranks_) {
    rank->resume();
    rank->start();
  }
}

// The update in progress ends, and everyone connects, within the deadlines' sum.
bool Fleet::settle() {
  const Instant limit = world_.scheduler.now() + seconds(90);
  while (world_.scheduler.now() < limit) {
    world_.scheduler.run_until(world_.scheduler.now() + milliseconds(500));
    if (!publisher_.busy() && publisher_.complete_ranks() == ranks_.size()) {
      return true;
    }
  }
  world_.checker.fail(publisher_.busy() ? "an update does not end in 90 s"
                                        : "not every rank is connected after 90 s of calm");
  return false;
}

void Fleet::await_update(int64_t version) {
  world_.scheduler.run_until(world_.scheduler.now() + seconds(30));
  const auto& report = publisher_.last_report();
  if (!report) {
    world_.checker.fail("the last update does not end in 30 s");
    return;
  }
  if (!report->status.ok()) {
    world_.checker.fail("after all faults healed the next update failed: " +
                        report->status.to_string());
  }
  for (const RankNode* rank : ranks_) {
    if (rank->version() != VersionStamp{0, version}) {
      world_.checker.fail(rank->name().to_text() +
                          " does not hold the last version: " + rank->describe());
    }
  }
  for (const Engine& engine : engines_) {
    if (world_.checker.last_step(engine.name) != version) {
      world_.checker.fail("engine " + engine.name + " takes no step on the last version");
    }
  }
}

// --- steps: each rank of an engine is let in by its own fence, in its own time

void Fleet::schedule_step(Engine& engine) {
  const bool lively = world_.scheduler.now() < lively_until_;
  world_.scheduler.after(lively ? world_.delay(milliseconds(1), milliseconds(12))
                                : world_.delay(milliseconds(50), milliseconds(900)),
                         [this, &engine] { start_step(engine); });
}

void Fleet::start_step(Engine& engine) {
  engine.guests.clear();
  enter(engine, 0);
}

void Fleet::enter(Engine& engine, size_t index) {
  RankNode& rank = *engine.ranks[index];
  // In `swap` a step carries its version: that of the first rank, which may be the newest it holds.
  std::optional<VersionStamp> named;
  if (rank.mode() == Mode::kSwap && index > 0) {
    named = engine.guests[0].pin.version;
  } else if (rank.mode() == Mode::kSwap && rank.alive() && world_.random.chance(0.5)) {
    named = rank.version();
  }
  const auto pin = rank.enter_step(named);
  if (!pin) {
    end_step(engine, false);
    return;
  }
  engine.guests.push_back({rank.life(), *pin});
  if (index + 1 < engine.ranks.size()) {
    world_.scheduler.after(world_.delay(milliseconds(0), milliseconds(6)),
                           [this, &engine, index] { enter(engine, index + 1); });
    return;
  }
  std::vector<std::vector<std::byte>> memory;
  const auto in = guests(engine, memory);
  if (in.size() < engine.ranks.size()) {
    end_step(engine, false);  // one died on the way in: the step does not run
    return;
  }
  world_.checker.on_step(engine.name, in, false);
  // Some steps in `swap` last over more than one update: the old half waits for them.
  const bool lasts = !calm_ && rank.mode() == Mode::kSwap && world_.random.chance(0.1);
  world_.scheduler.after(lasts ? world_.delay(milliseconds(200), milliseconds(500))
                               : world_.delay(milliseconds(0), milliseconds(20)),
                         [this, &engine] { end_step(engine, true); });
}

void Fleet::end_step(Engine& engine, bool ran) {
  if (ran) {
    std::vector<std::vector<std::byte>> memory;
    const auto in = guests(engine, memory);
    if (!in.empty()) {
      world_.checker.on_step(engine.name, in, true);
    }
  }
  for (size_t i = 0; i < engine.guests.size(); ++i) {
    engine.ranks[i]->leave_step(engine.guests[i].life, engine.guests[i].pin.half);
  }
  engine.guests.clear();
  schedule_step(engine);
}

std::vector<Checker::InStep> Fleet::guests(const Engine& engine,
                                           std::vector<std::vector<std::byte>>& memory) const {
  std::vector<Checker::InStep> in;
  memory.reserve(engine.guests.size());  // spans into it stay valid
  for (size_t i = 0; i < engine.guests.size(); ++i) {
    const RankNode& rank = *engine.ranks[i];
    if (rank.alive() && rank.life() == engine.guests[i].life) {
      const update::FenceState::Pin& pin = engine.guests[i].pin;
      memory.push_back(rank.memory(pin.half));
      in.push_back({rank.name(), pin.version.version, memory.back()});
    }
  }
  return in;
}

}  // namespace changeover::sim
