#include "reference/step_simulation_testing.h"

#include <gtest/gtest.h>

namespace changeover::reference {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

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

}  // namespace changeover::reference
