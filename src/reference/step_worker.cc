#include "reference/step_worker.h"

#include <utility>

namespace changeover::reference {
namespace {

// How long one wait for the fence lasts before it is looked whether the rank is to stop.
constexpr std::chrono::milliseconds kAwaitSlice(200);

}  // namespace

StepWorker::StepWorker(Engine engine, Report report)
    : engine_(std::move(engine)), report_(std::move(report)), thread_([this] { run(); }) {}

StepWorker::~StepWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StepWorker::order(Order order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(order);
  }
  changed_.notify_one();
}

void StepWorker::run() {
  while (true) {
    Order order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !orders_.empty(); });
      if (stop_) {
        guard_.release();
        return;
      }
      order = orders_.front();
      orders_.pop_front();
    }
    std::visit([this](const auto& o) { execute(o); }, order);
  }
}

void StepWorker::execute(const StepFollower::TakeGuard& order) {
  guard_.release();
  guard_step_ = order.step;
  constexpr std::chrono::nanoseconds kNow(0);
  StepFollower::GuardTaken taken{order.step, std::nullopt, {}, std::nullopt, false};
  if (engine_.staged) {
    taken.next = engine_.staged();
    taken.staged = taken.next.has_value();
  }
  auto live = engine_.fence.acquire(kNow);
  if (order.carried && !(live.ok() && live->version() == *order.carried)) {
    // The engine's steps may still run on a version that is not the live one any more.
    auto carried = engine_.fence.acquire_version(*order.carried, kNow);
    if (carried.ok()) {
      taken.next = taken.staged || !live.ok() ? taken.next : std::optional(live->version());
      live = std::move(carried);
    }
  }
  if (live.ok()) {
    guard_ = std::move(live).take();
    taken.version = guard_.version();
  } else {
    taken.reason = live.status().message();
  }
  report_(std::move(taken));
}

void StepWorker::execute(const StepFollower::DropGuard& order) {
  if (guard_step_ == order.step) {
    guard_.release();
  }
}

void StepWorker::execute(const StepFollower::AwaitFence&) {
  while (!stopping()) {
    if (auto guard = engine_.fence.acquire(kAwaitSlice); guard.ok()) {
      guard->release();
      return report_(StepFollower::FenceOpen{});
    }
  }
}

void StepWorker::execute(const StepFollower::ChangeOver&) {
  guard_.release();
  while (!stopping()) {
    if (engine_.change_over(kAwaitSlice).ok()) {
      return report_(StepFollower::FenceOpen{});
    }
  }
}

void StepWorker::execute(const StepFollower::Compute& order) {
  const PassResult result = engine_.pass(order.step, guard_.half());
  guard_.release();
  report_(StepFollower::Computed{order.step, result.checksum, result.window});
}

bool StepWorker::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

}  // namespace changeover::reference
