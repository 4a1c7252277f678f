// The thread that takes guards and runs steps, so that the loop's thread never waits for a fence.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include <changeover/fence.h>

#include "reference/live_pass.h"
#include "reference/step_follower.h"

namespace changeover::reference {

class StepWorker {
 public:
  using Pass = std::function<PassResult(uint64_t step)>;
  // Called on the worker's thread with GuardTaken, FenceOpen or Computed.
  using Report = std::function<void(StepFollower::Event)>;
  using Order = std::variant<StepFollower::TakeGuard, StepFollower::DropGuard,
                             StepFollower::AwaitFence, StepFollower::Compute>;

  // `fence` must outlive it. The thread starts at once.
  StepWorker(Fence& fence, Pass pass, Report report);
  ~StepWorker();  // Drops the guard; waits for an order in progress (a pass, or kAwaitSlice).
  StepWorker(const StepWorker&) = delete;
  StepWorker& operator=(const StepWorker&) = delete;

  // The follower gives a handful at a time: one step is open, and each order answers one event.
  void order(Order order);

 private:
  void run();
  void execute(const StepFollower::TakeGuard& order);
  void execute(const StepFollower::DropGuard& order);
  void execute(const StepFollower::AwaitFence& order);
  void execute(const StepFollower::Compute& order);
  bool stopping();

  Fence& fence_;
  Pass pass_;
  Report report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Order> orders_;
  bool stop_ = false;
  uint64_t guard_step_ = 0;  // worker thread only
  Fence::Guard guard_;       // worker thread only
  std::thread thread_;       // last: it uses all of the above
};

}  // namespace changeover::reference
