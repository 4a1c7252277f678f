// A whole engine in virtual time: real machines, and a network, fences and processes that fail by
// a seed. Checked: one version per step on all ranks, counted by all or by none, guards given
// back, and steps again once everything is well.
#include <functional>
#include <map>
#include <queue>
#include <set>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "reference/step_conductor.h"
#include "reference/step_follower.h"

namespace changeover::reference {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr int kRanks = 3;
constexpr uint64_t kSeeds = 150;

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {
    for (int rank = 0; rank < kRanks; ++rank) {
      start(rank);
    }
  }

  void run_for(nanoseconds duration) {
    const Instant until = now_ + duration;
    while (!queue_.empty() && queue_.top().at <= until) {
      const Item item = queue_.top();
      queue_.pop();
      now_ = item.at;
      item.what();
    }
    now_ = until;
  }

  // --- faults ---
  void chaos() {
    after(random_delay(50, 400), [this] {
      if (healed_) {
        return;
      }
      const int rank = static_cast<int>(random_.below(kRanks));
      switch (random_.below(6)) {
        case 0:
          kill(rank);
          after(random_delay(1, 1500), [this, rank] { start(rank); });
          break;
        case 1:
          cut(rank);
          break;
        case 2:
          processes_[rank].stalled = true;
          after(random_delay(1, 4000), [this, rank] { resume(rank); });
          break;
        default:
          update();
      }
      chaos();
    });
  }

  void heal() {
    healed_ = true;
    ++version_;
    for (int rank = 0; rank < kRanks; ++rank) {
      start(rank);
      resume(rank);
      rewrite(rank, version_);
    }
  }

  // --- what happened ---
  struct Computed {
    std::optional<VersionStamp> version;
    std::set<int> ranks;
    std::set<uint64_t> lives;
  };
  // A step's number is unique as long as one rank that saw it lives; here all may die, so the
  // conductor's life is part of the key.
  using Key = std::pair<uint64_t, uint64_t>;
  std::map<Key, Computed> computed;
  std::map<Key, std::set<uint64_t>> counted;  // by which lives
  std::set<uint64_t> alive() const {
    std::set<uint64_t> lives;
    for (const Process& process : processes_) {
      lives.insert(process.life);
    }
    return lives;
  }
  StepStatus status(int rank) { return processes_[rank].follower->status(now_); }
  bool guard_held(int rank) const { return processes_[rank].guard_step != 0; }
  Instant now() const { return now_; }
  void kill(int rank);
  void start(int rank);
  void cut(int rank);
  void stall(int rank) { processes_[rank].stalled = true; }
  void resume(int rank);
  void rewrite(int rank, int64_t version);
  void fence(int rank) { processes_[rank].open = false; }
  void repeat_messages() { repeat_ = true; }
  std::string waiting_for() const { return processes_[0].conductor->waiting_for(); }

 private:
  struct Item {
    Instant at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Process {
    bool running = false;
    bool stalled = false;
    uint64_t life = 0;
    std::vector<std::function<void()>> backlog;
    std::optional<StepFollower> follower;
    std::optional<StepConductor> conductor;  // rank 0
    std::optional<uint64_t> link;
    std::optional<VersionStamp> version;  // what its memory holds
    int64_t target = -1;                  // what it is being rewritten to
    bool open = false;
    bool awaiting = false;
    uint64_t guard_step = 0;
    Instant guard_since{};
    Instant stalled_until{};
    Instant worker{};
    uint64_t seen_counted = 0;
    Key key{};  // of the last step it ran
  };
  struct Link {
    int rank = 0;
    bool up = true;
    Instant to_conductor{};  // nothing overtakes
    Instant to_follower{};
  };

  void after(nanoseconds delay, std::function<void()> what) {
    queue_.push({now_ + delay, order_++, std::move(what)});
  }
  nanoseconds random_delay(int64_t low_ms, int64_t high_ms) {
    return nanoseconds(random_.between(low_ms * 1'000'000, high_ms * 1'000'000));
  }
  // Into one life of a process: lost if that life is over, late if it is stopped.
  void post(int rank, nanoseconds delay, std::function<void()> what) {
    const uint64_t life = processes_[rank].life;
    after(delay, [this, rank, life, what = std::move(what)] {
      Process& process = processes_[rank];
      if (!process.running || process.life != life) {
        return;
      }
      if (process.stalled) {
        process.backlog.push_back(what);
      } else {
        what();
      }
    });
  }
  void follow(int rank, StepFollower::Event event);
  void conduct(StepConductor::Event event);
  void act(int rank, const StepFollower::Action& action);
  void dial(int rank);
  void close_link(uint64_t id);
  void deliver(uint64_t id, bool to_conductor, const StepMessage& message);
  void compute(int rank, uint64_t step);
  void drop_guard(int rank);
  void update();

  base::Prng random_;
  Instant now_{1};
  uint64_t order_ = 0;
  std::priority_queue<Item> queue_;
  Process processes_[kRanks];
  std::map<uint64_t, Link> links_;
  uint64_t next_link_ = 1;
  uint64_t next_life_ = 1;
  int64_t version_ = 0;
  bool healed_ = false;
  bool repeat_ = false;
};

void Simulation::start(int rank) {
  Process& process = processes_[rank];
  if (process.running) {
    return;
  }
  process = Process{};
  process.running = true;
  process.life = next_life_++;
  StepIdentity identity{"job", "a", rank, kRanks, {}};
  identity.incarnation.bytes[0] = static_cast<uint8_t>(process.life);
  identity.incarnation.bytes[1] = static_cast<uint8_t>(process.life >> 8);
  StepFollower::Options follower;
  follower.identity = identity;
  process.follower.emplace(follower);
  if (rank == 0) {
    StepConductor::Options conductor;
    conductor.identity = identity;
    process.conductor.emplace(conductor);
  }
  follow(rank, StepFollower::Tick{});
}

void Simulation::kill(int rank) {
  Process& process = processes_[rank];
  if (!process.running) {
    return;
  }
  process.running = false;
  process.stalled = false;
  process.guard_step = 0;
  for (auto& [id, link] : links_) {
    if (link.up && (rank == 0 || link.rank == rank)) {
      close_link(id);
    }
  }
}

void Simulation::cut(int rank) {
  if (const auto link = processes_[rank].link; link && links_[*link].up) {
    close_link(*link);
  }
}

void Simulation::resume(int rank) {
  Process& process = processes_[rank];
  process.stalled = false;
  process.stalled_until = now_;
  auto backlog = std::move(process.backlog);
  process.backlog.clear();
  const uint64_t life = process.life;
  for (const auto& what : backlog) {
    if (process.life == life) {
      what();
    }
  }
}

void Simulation::close_link(uint64_t id) {
  Link& link = links_[id];
  link.up = false;
  post(link.rank, milliseconds(1), [this, id, rank = link.rank] {
    if (processes_[rank].link == id) {
      processes_[rank].link.reset();
      follow(rank, StepFollower::LinkDown{"the link is gone"});
    }
  });
  post(0, random_delay(0, 3), [this, id] { conduct(StepConductor::LinkClosed{id}); });
}

void Simulation::dial(int rank) {
  if (!processes_[0].running) {
    post(rank, milliseconds(1), [this, rank] { follow(rank, StepFollower::LinkDown{"nobody"}); });
    return;
  }
  const uint64_t id = next_link_++;
  links_[id] = Link{rank, true, now_, now_};
  processes_[rank].link = id;
  deliver(id, true, {});
  post(rank, milliseconds(1), [this, rank, id] {
    if (processes_[rank].link == id) {
      follow(rank, StepFollower::LinkUp{});
    }
  });
}

// A message without a sender stands for the accepted connection itself.
void Simulation::deliver(uint64_t id, bool to_conductor, const StepMessage& message) {
  Link& link = links_[id];
  Instant& last = to_conductor ? link.to_conductor : link.to_follower;
  last = std::max(last, now_ + random_delay(0, random_.chance(0.02) ? 300 : 2)) + nanoseconds(1);
  const int times = repeat_ && random_.chance(0.3) ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    post(to_conductor ? 0 : link.rank, last - now_, [this, id, to_conductor, message] {
      if (!links_[id].up) {
        return;
      }
      if (!to_conductor) {
        return follow(links_[id].rank, StepFollower::Received{message});
      }
      if (message.sender == Incarnation{}) {
        return conduct(StepConductor::LinkOpened{id});
      }
      conduct(StepConductor::Received{id, message});
    });
  }
}

void Simulation::conduct(StepConductor::Event event) {
  StepConductor& conductor = *processes_[0].conductor;
  conductor.handle(event, now_);
  while (const auto action = conductor.poll()) {
    if (const auto* send = std::get_if<StepConductor::Send>(&*action)) {
      if (links_[send->link].up) {
        deliver(send->link, false, send->message);
      }
    } else {
      const uint64_t id = std::get<StepConductor::CloseLink>(*action).link;
      if (links_[id].up) {  // What was sent before is delivered before.
        post(0, milliseconds(400), [this, id] {
          if (links_[id].up) {
            close_link(id);
          }
        });
      }
    }
  }
  if (const Instant due = conductor.deadline(); due != Instant::never()) {
    post(0, std::max(nanoseconds(0), due - now_), [this] {
      if (now_ >= processes_[0].conductor->deadline()) {
        conduct(StepConductor::Tick{});
      }
    });
  }
}

void Simulation::follow(int rank, StepFollower::Event event) {
  Process& process = processes_[rank];
  process.follower->handle(event, now_);
  while (const auto action = process.follower->poll()) {
    act(rank, *action);
  }
  if (const auto record = process.follower->last_counted();
      record && record->step > process.seen_counted) {
    process.seen_counted = record->step;
    EXPECT_EQ(process.key.second, record->step);
    counted[process.key].insert(process.life);
  }
  if (const Instant due = process.follower->deadline(); due != Instant::never()) {
    post(rank, std::max(nanoseconds(0), due - now_), [this, rank] {
      if (now_ >= processes_[rank].follower->deadline()) {
        follow(rank, StepFollower::Tick{});
      }
    });
  }
}

void Simulation::act(int rank, const StepFollower::Action& action) {
  Process& process = processes_[rank];
  if (std::holds_alternative<StepFollower::Dial>(action)) {
    dial(rank);
  } else if (std::holds_alternative<StepFollower::CloseLink>(action)) {
    cut(rank);
  } else if (const auto* send = std::get_if<StepFollower::Send>(&action)) {
    if (process.link && links_[*process.link].up) {
      deliver(*process.link, true, send->message);
    }
  } else if (const auto* take = std::get_if<StepFollower::TakeGuard>(&action)) {
    // One worker, one thing after the other.
    process.worker = std::max(process.worker, now_ + random_delay(0, 2)) + nanoseconds(1);
    post(rank, process.worker - now_, [this, rank, step = take->step] {
      Process& at = processes_[rank];
      StepFollower::GuardTaken taken{step, std::nullopt, "fenced"};
      if (at.open && at.version) {
        at.guard_step = step;
        at.guard_since = now_;
        taken = {step, at.version, {}};
      }
      follow(rank, taken);
    });
  } else if (std::holds_alternative<StepFollower::DropGuard>(action)) {
    if (process.guard_step == std::get<StepFollower::DropGuard>(action).step) {
      drop_guard(rank);
    }
  } else if (std::holds_alternative<StepFollower::AwaitFence>(action)) {
    process.awaiting = true;
    if (process.open && process.version) {
      process.awaiting = false;
      post(rank, milliseconds(1), [this, rank] { follow(rank, StepFollower::FenceOpen{}); });
    }
  } else {
    compute(rank, std::get<StepFollower::Compute>(action).step);
  }
}

void Simulation::drop_guard(int rank) {
  Process& process = processes_[rank];
  if (process.stalled_until < process.guard_since) {
    EXPECT_LE(now_ - process.guard_since, seconds(3)) << "a guard was kept";
  }
  process.guard_step = 0;
}

void Simulation::compute(int rank, uint64_t step) {
  Process& process = processes_[rank];
  ASSERT_EQ(process.guard_step, step) << "a step without its guard";
  process.key = {processes_[0].life, step};
  Computed& record = computed[process.key];
  if (!record.version) {
    record.version = process.version;
  }
  EXPECT_EQ(record.version, process.version) << "V6: step " << step << " on two versions";
  post(rank, random_delay(1, 10), [this, rank, step, key = process.key] {
    Process& at = processes_[rank];
    EXPECT_EQ(computed[key].version, at.version) << "the version moved under a guard";
    computed[key].ranks.insert(rank);
    computed[key].lives.insert(at.life);
    drop_guard(rank);
    const uint64_t checksum = static_cast<uint64_t>(at.version->version);
    follow(rank, StepFollower::Computed{step, checksum, 0});
  });
}

// The fence goes up, the memory is rewritten when no guard is left, the fence falls.
void Simulation::rewrite(int rank, int64_t version) {
  processes_[rank].open = false;
  processes_[rank].target = version;
  post(rank, random_delay(1, 60), [this, rank, version] {
    Process& process = processes_[rank];
    if (process.target != version) {
      return;  // Overtaken by a later update.
    }
    if (process.guard_step != 0) {
      return rewrite(rank, version);
    }
    process.version = VersionStamp{0, version};
    process.open = true;
    if (std::exchange(process.awaiting, false)) {
      follow(rank, StepFollower::FenceOpen{});
    }
  });
}

// Mostly all ranks get the new version; sometimes one keeps another (what no step may run on).
void Simulation::update() {
  ++version_;
  const uint64_t odd = random_.chance(0.3) ? random_.below(kRanks) : kRanks;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (processes_[rank].running) {
      rewrite(rank, static_cast<uint64_t>(rank) == odd ? version_ + 1000 : version_);
    }
  }
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
    EXPECT_EQ(at->second.ranks.size(), size_t{kRanks}) << "counted, not run by all";
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
  uint64_t counted = 0;
  for (uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed);
    if (seed % 2 == 0) {
      simulation.repeat_messages();
    }
    simulation.chaos();
    simulation.run_for(seconds(15));
    simulation.heal();
    simulation.run_for(seconds(30));
    uint64_t healed[kRanks];
    for (int rank = 0; rank < kRanks; ++rank) {
      healed[rank] = simulation.status(rank).run;
    }
    simulation.run_for(seconds(10));
    for (int rank = 0; rank < kRanks; ++rank) {
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

TEST(StepSimulation, AFencedRankIsNotAskedInALoopAndSaysWhenItIsReady) {
  Simulation simulation(2);
  for (int rank = 0; rank < kRanks; ++rank) {
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
  for (int rank = 0; rank < kRanks; ++rank) {
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
  for (uint64_t seed = 1; seed < 40; ++seed) {
    Simulation simulation(seed);
    for (int rank = 0; rank < kRanks; ++rank) {
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
  for (int rank = 0; rank < kRanks; ++rank) {
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
