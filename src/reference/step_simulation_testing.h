// A whole engine in virtual time: real machines, and a network, fences and processes that fail by
// a seed. Found wrong at once (EXPECT): a step on two versions, a version that moves under a guard,
// a guard that is kept.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "reference/step_conductor.h"
#include "reference/step_follower.h"

namespace changeover::reference {

// How new versions come to the ranks, as their modes do it.
enum class Style : uint8_t { kRewrite, kStage, kFlip };

class Simulation {
 public:
  static constexpr int kRanks = 3;
  explicit Simulation(uint64_t seed, Style style = Style::kRewrite) : random_(seed), style_(style) {
    for (int rank = 0; rank < kRanks; ++rank) {
      start(rank);
    }
  }

  void run_for(std::chrono::nanoseconds duration) {
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
  // The version waits for a boundary; it changes over when all ranks have been told to.
  void stage(int rank, int64_t version);
  bool changing(int rank) const { return processes_[rank].changing.has_value(); }
  // The version is live on all ranks, each in its own time, and each lets steps in when all have
  // it.
  void flip_all(int64_t version);
  VersionStamp version(int rank) const { return *processes_[rank].version; }
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
    std::optional<VersionStamp> old;      // can still be named
    std::optional<VersionStamp> staged;
    std::optional<VersionStamp> changing;  // told to change over; waits for the other ranks
    std::optional<VersionStamp> held;      // of its guard
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

  void after(std::chrono::nanoseconds delay, std::function<void()> what) {
    queue_.push({now_ + delay, order_++, std::move(what)});
  }
  std::chrono::nanoseconds random_delay(int64_t low_ms, int64_t high_ms) {
    return std::chrono::nanoseconds(random_.between(low_ms * 1'000'000, high_ms * 1'000'000));
  }
  // Into one life of a process: lost if that life is over, late if it is stopped.
  void post(int rank, std::chrono::nanoseconds delay, std::function<void()> what) {
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
  StepFollower::GuardTaken take_guard(Process& process, const StepFollower::TakeGuard& take);
  void change_over(int rank);
  void end_flip(int rank);
  void end_change(int rank, std::optional<VersionStamp> version);

  base::Prng random_;
  const Style style_;
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

}  // namespace changeover::reference
