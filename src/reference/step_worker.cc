#include "reference/step_worker.h"

#include <utility>

namespace changeover::reference {
namespace {

// How long one wait for the fence lasts before it is looked whether the rank is to stop.
constexpr std::chrono::milliseconds kAwaitSlice(200);

}  // namespace

StepWorker::StepWorker(Fence& fence, Pass pass, Report report)
    : fence_(fence),
      pass_(std::move(pass)),
      report_(std::move(report)),
      thread_([this] { run(); }) {}

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
  auto guard = fence_.acquire(std::chrono::nanoseconds(0));
  if (!guard.ok()) {
    return report_(StepFollower::GuardTaken{order.step, std::nullopt, guard.status().message()});
  }
  guard_ = std::move(guard).take();
  report_(StepFollower::GuardTaken{order.step, guard_.version(), {}});
}

void StepWorker::execute(const StepFollower::DropGuard& order) {
  if (guard_step_ == order.step) {
    guard_.release();
  }
}

void StepWorker::execute(const StepFollower::AwaitFence&) {
  while (!stopping()) {
    if (auto guard = fence_.acquire(kAwaitSlice); guard.ok()) {
      guard->release();
      return report_(StepFollower::FenceOpen{});
    }
  }
}

void StepWorker::execute(const StepFollower::Compute& order) {
  const PassResult result = pass_(order.step);
  guard_.release();
  report_(StepFollower::Computed{order.step, result.checksum, result.window});
}

bool StepWorker::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

}  // namespace changeover::reference
