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
    post(rank, process.worker - now_,
         [this, rank, take = *take] { follow(rank, take_guard(processes_[rank], take)); });
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
  } else if (std::holds_alternative<StepFollower::ChangeOver>(action)) {
    change_over(rank);
  } else {
    compute(rank, std::get<StepFollower::Compute>(action).step);
  }
}

StepFollower::GuardTaken Simulation::take_guard(Process& process,
                                                const StepFollower::TakeGuard& take) {
  StepFollower::GuardTaken taken{take.step, std::nullopt, {}, process.staged, false};
  taken.staged = process.staged.has_value();
  if (process.open && process.version) {
    taken.version = process.version;
  }
  if (take.carried && process.old == take.carried && taken.version != take.carried) {
    taken.next = taken.version;
    taken.version = process.old;
  }
  if (taken.version) {
    process.guard_step = take.step;
    process.guard_since = now_;
    process.held = taken.version;
  } else {
    taken.reason = "fenced";
  }
  return taken;
}

void Simulation::stage(int rank, int64_t version) {
  processes_[rank].staged = VersionStamp{0, version};
  post(rank, seconds(3), [this, rank, version] {
    Process& process = processes_[rank];
    if (process.staged == VersionStamp{0, version}) {
      process.staged.reset();  // No boundary came.
    }
  });
}

void Simulation::change_over(int rank) {
  Process& process = processes_[rank];
  process.awaiting = true;
  if (!process.staged) {
    return end_change(rank, process.version);
  }
  process.open = false;
  process.changing = std::exchange(process.staged, std::nullopt);
  for (const Process& other : processes_) {
    if (other.running && other.changing != process.changing && other.version != process.changing) {
      const VersionStamp version = *process.changing;
      return post(rank, seconds(2), [this, rank, version] {
        if (processes_[rank].changing == version) {
          end_change(rank, processes_[rank].version);  // Aborted.
        }
      });
    }
  }
  for (int each = 0; each < kRanks; ++each) {
    if (const auto version = processes_[each].changing) {
      post(each, random_delay(1, 20), [this, each, version] {
        if (processes_[each].changing == version) {
          end_change(each, version);
        }
      });
    }
  }
}

void Simulation::end_change(int rank, std::optional<VersionStamp> version) {
  Process& process = processes_[rank];
  EXPECT_EQ(process.guard_step, 0u) << "it changed over with a guard held";
  process.changing.reset();
  process.version = version;
  process.open = version.has_value();
  if (process.open && std::exchange(process.awaiting, false)) {
    follow(rank, StepFollower::FenceOpen{});
  }
}

void Simulation::flip_all(int64_t version) {
  const VersionStamp next{0, version};
  const bool held = std::any_of(std::begin(processes_), std::end(processes_), [](const Process& p) {
    return p.running && (p.stalled || (p.guard_step != 0 && p.held == p.old));
  });
  if (held) {
    return;  // Refused: a rank is silent, or a guard holds the half that would be overwritten.
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!processes_[rank].running) {
      continue;
    }
    processes_[rank].old.reset();
    post(rank, random_delay(0, 20), [this, rank, next] {
      Process& process = processes_[rank];
      process.old = std::exchange(process.version, next);
      process.open = false;
    });
    post(rank, random_delay(21, 60), [this, rank, next] {
      if (processes_[rank].version == next) {
        end_flip(rank);
      }
    });
  }
}

void Simulation::end_flip(int rank) {
  Process& process = processes_[rank];
  process.open = true;
  if (std::exchange(process.awaiting, false)) {
    follow(rank, StepFollower::FenceOpen{});
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
    record.version = process.held;
  }
  EXPECT_EQ(record.version, process.held) << "V6: step " << step << " on two versions";
  post(rank, random_delay(1, 10), [this, rank, step, key = process.key] {
    Process& at = processes_[rank];
    EXPECT_TRUE(computed[key].version == at.version || computed[key].version == at.old)
        << "the version moved under a guard";
    computed[key].ranks.insert(rank);
    computed[key].lives.insert(at.life);
    const uint64_t checksum = static_cast<uint64_t>(at.held->version);
    drop_guard(rank);
    follow(rank, StepFollower::Computed{step, checksum, 0});
  });
}

// The fence goes up, the memory is rewritten when no guard is left, the fence falls.
void Simulation::rewrite(int rank, int64_t version) {
  processes_[rank].open = false;
  processes_[rank].changing.reset();  // Overtaken, as is what waits.
  processes_[rank].staged.reset();
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
  if (style_ == Style::kFlip) {
    return flip_all(version_);
  }
  const uint64_t odd = random_.chance(0.3) ? random_.below(kRanks) : kRanks;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (processes_[rank].running && processes_[rank].open && style_ == Style::kStage) {
      stage(rank, version_);
    } else if (processes_[rank].running) {
      rewrite(rank, static_cast<uint64_t>(rank) == odd ? version_ + 1000 : version_);
    }
  }
}

}  // namespace changeover::reference
