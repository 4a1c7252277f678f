#include "reference/step_follower.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace changeover::reference {

void StepFollower::handle(const Event& event, Instant now) {
  if (now >= guard_deadline_) {
    on(Tick{}, now);  // A late word from the conductor must not find a guard that is over.
  }
  std::visit([&](const auto& e) { on(e, now); }, event);
}

std::optional<StepFollower::Action> StepFollower::poll() {
  if (actions_.empty()) {
    return std::nullopt;
  }
  Action action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

Instant StepFollower::deadline() const {
  return std::min(dial_at_, guard_deadline_);
}

StepStatus StepFollower::status(Instant now) const {
  StepStatus status = statistics_.snapshot(now);
  if (!welcomed_) {
    status.waiting_for = fmt::format("rank 0 of engine \"{}\", which conducts the steps: {}",
                                     options_.identity.engine, link_reason_);
  } else if (awaiting_) {
    status.waiting_for = fmt::format("this rank: {}", fence_reason_);
  } else {
    status.waiting_for = engine_reason_;
  }
  return status;
}

void StepFollower::on(const LinkUp&, Instant) {
  link_ = true;
  dial_at_ = Instant::never();
  StepMessage hello = blank(StepKind::kHello, step_);
  hello.job = options_.identity.job;
  hello.engine = options_.identity.engine;
  actions_.push_back(Send{std::move(hello)});
}

void StepFollower::on(const LinkDown& event, Instant now) {
  link_ = false;
  welcomed_ = false;
  tell_ready_ = false;  // the next hello starts as ready
  if (!event.why.empty()) {
    link_reason_ = event.why;
  }
  abandon();
  back_off_ = std::clamp(back_off_ * 2, options_.dial_back_off_min, options_.dial_back_off_max);
  dial_at_ = now + back_off_;
}

void StepFollower::on(const Received& event, Instant now) {
  const StepMessage& message = event.message;
  if (message.kind == StepKind::kWelcome || message.kind == StepKind::kCancel ||
      message.kind == StepKind::kRun || message.kind == StepKind::kClose) {
    engine_reason_ = message.text;
  }
  switch (message.kind) {
    case StepKind::kWelcome:
      welcomed_ = true;
      back_off_ = {};
      return;
    case StepKind::kRefuse:
      return refused(message);
    case StepKind::kPrepare:
      return prepare(message, now);
    case StepKind::kRun:
      return run(message, now);
    case StepKind::kCancel:
      return cancel(message.step);
    case StepKind::kClose:
      return close(message);
    case StepKind::kChange:
      return change(message);
    default:
      return;  // A follower's word: not meant for us.
  }
}

void StepFollower::prepare(const StepMessage& message, Instant now) {
  if (!welcomed_ || message.step == 0) {
    return;
  }
  if (last_answer_ && last_answer_->step == message.step) {
    return send(*last_answer_);
  }
  if (message.step == step_ && phase_ != Phase::kIdle) {
    return;  // Still taking the guard: the answer follows.
  }
  if (message.step <= step_) {
    return answer(message.step, std::nullopt,
                  fmt::format("step {} is over, this rank is at step {}", message.step, step_));
  }
  if (phase_ == Phase::kComputing) {
    tell_ready_ = true;
    return answer(message.step, std::nullopt, fmt::format("still in step {}", step_));
  }
  settle(message.last_run);
  abandon();
  step_ = message.step;
  open_ = true;
  statistics_.begun(step_);
  if (awaiting_) {
    tell_ready_ = true;
    return answer(step_, std::nullopt, fence_reason_);
  }
  phase_ = Phase::kTaking;
  guard_deadline_ = now + options_.guard_timeout;
  actions_.push_back(TakeGuard{step_, carried_});
}

void StepFollower::on(const GuardTaken& event, Instant) {
  if (event.step != step_ || phase_ != Phase::kTaking) {
    if (event.version) {
      actions_.push_back(DropGuard{event.step});  // Cancelled meanwhile.
    }
    return;
  }
  staged_ = event.staged ? event.next : std::nullopt;
  if (event.version) {
    phase_ = Phase::kHolding;
    held_ = carried_ = event.version;
    return answer(step_, held_, {}, event.next);
  }
  phase_ = Phase::kIdle;
  guard_deadline_ = Instant::never();
  fence_reason_ = event.reason;
  awaiting_ = true;
  tell_ready_ = true;
  actions_.push_back(AwaitFence{});
  answer(step_, std::nullopt, fence_reason_);
}

void StepFollower::on(const FenceOpen&, Instant) {
  awaiting_ = false;
  if (std::exchange(tell_ready_, false)) {
    send(blank(StepKind::kReady, step_));
  }
}

void StepFollower::run(const StepMessage& message, Instant now) {
  if (last_done_ && last_done_->step == message.step) {
    return send(*last_done_);
  }
  if (message.step == step_ && phase_ == Phase::kComputing) {
    return;
  }
  if (message.step != step_ || phase_ != Phase::kHolding) {
    return not_run(message.step, "this rank holds no guard for it any more");
  }
  if (message.version != held_) {  // The conductor compared, so this is its bug, or not its word.
    abandon();
    return not_run(message.step, "it was called for another version than this rank's guard holds");
  }
  phase_ = Phase::kComputing;
  guard_deadline_ = Instant::never();
  closed_early_ = false;
  start_ = now;
  actions_.push_back(Compute{step_});
}

void StepFollower::on(const Computed& event, Instant now) {
  if (event.step != step_ || phase_ != Phase::kComputing) {
    return;
  }
  phase_ = Phase::kIdle;
  open_ = false;
  StepRun run;
  run.record = {step_, *held_, event.checksum};
  run.window = event.window;
  run.start = start_;
  run.end = now;
  held_.reset();
  if (closed_early_) {
    statistics_.incomplete();
  } else {
    tentative_ = run;
  }
  StepMessage done = blank(StepKind::kDone, step_);
  done.yes = true;
  done.version = run.record.version;
  done.checksum = event.checksum;
  last_done_ = done;
  send(std::move(done));
  if (std::exchange(tell_ready_, false)) {
    send(blank(StepKind::kReady, step_));
  }
}

void StepFollower::cancel(uint64_t step) {
  if (step != step_) {
    return;
  }
  const bool taking = phase_ == Phase::kTaking;
  if (phase_ != Phase::kComputing) {
    abandon();
  }
  if (taking) {  // The conductor may have given us up as silent: say that we are not.
    send(blank(StepKind::kReady, step));
  }
}

// A boundary: no rank is in a step, and none starts one on the old version after this.
void StepFollower::change(const StepMessage& message) {
  if (phase_ == Phase::kComputing || !message.version) {
    return;
  }
  if (message.step == step_) {
    abandon();
  }
  carried_ = message.version;
  if (staged_ != message.version || awaiting_) {
    return;
  }
  staged_.reset();
  fence_reason_ = fmt::format("changing over to version {}", message.version->version);
  awaiting_ = true;
  tell_ready_ = true;
  actions_.push_back(ChangeOver{});
}

void StepFollower::close(const StepMessage& message) {
  if (tentative_ && tentative_->record.step == message.step) {
    settle(message.yes ? message.step : 0);
  } else if (message.step == step_ && phase_ == Phase::kComputing) {
    closed_early_ = true;
  } else if (message.step == step_ && phase_ != Phase::kIdle) {
    abandon();
  }
}

// The conductor knows which step was the last that counts; ours is that one, or counts for nobody.
void StepFollower::settle(uint64_t last_run) {
  if (!tentative_) {
    return;
  }
  if (tentative_->record.step == last_run) {
    statistics_.counted(*tentative_);
  } else {
    statistics_.incomplete();
  }
  tentative_.reset();
}

void StepFollower::refused(const StepMessage& message) {
  link_reason_ = message.text;
  welcomed_ = false;
  back_off_ = options_.dial_back_off_max;
  actions_.push_back(CloseLink{});
}

void StepFollower::on(const Tick&, Instant now) {
  if (now >= guard_deadline_) {
    const bool taking = phase_ == Phase::kTaking;
    abandon();
    if (taking) {
      answer(step_, std::nullopt, "the guard was not had in time");
    }
  }
  if (now >= dial_at_) {
    dial_at_ = Instant::never();
    actions_.push_back(Dial{});
  }
}

// Gives back what was taken for a step that will not run. A step being computed runs to its end.
void StepFollower::abandon() {
  if (phase_ == Phase::kComputing) {
    return;
  }
  if (phase_ == Phase::kHolding) {
    actions_.push_back(DropGuard{step_});
  }
  phase_ = Phase::kIdle;
  held_.reset();
  guard_deadline_ = Instant::never();
  if (std::exchange(open_, false)) {
    statistics_.cancelled();
  }
}

void StepFollower::answer(uint64_t step, std::optional<VersionStamp> version, std::string text,
                          std::optional<VersionStamp> next) {
  StepMessage message = blank(StepKind::kAnswer, step);
  message.yes = version.has_value();
  message.version = version;
  message.next = next;
  message.text = std::move(text);
  if (step >= step_) {
    last_answer_ = message;
  }
  send(std::move(message));
}

void StepFollower::not_run(uint64_t step, std::string text) {
  StepMessage message = blank(StepKind::kDone, step);
  message.text = std::move(text);
  send(std::move(message));
}

void StepFollower::send(StepMessage message) {
  if (link_) {
    actions_.push_back(Send{std::move(message)});
  }
}

StepMessage StepFollower::blank(StepKind kind, uint64_t step) const {
  StepMessage message;
  message.kind = kind;
  message.sender = options_.identity.incarnation;
  message.step = step;
  message.last_run = statistics_.last_run();
  message.rank = options_.identity.rank;
  message.engine_size = options_.identity.engine_size;
  return message;
}

}  // namespace changeover::reference
