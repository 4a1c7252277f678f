// The thread that takes guards and runs steps, so that the loop's thread never waits for a fence.
#pragma once

#include <chrono>
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
  // What a step reads, while a guard of this half is held.
  using Pass = std::function<PassResult(uint64_t step, uint32_t half)>;
  // Called on the worker's thread with GuardTaken, FenceOpen or Computed.
  using Report = std::function<void(StepFollower::Event)>;
  using Order =
      std::variant<StepFollower::TakeGuard, StepFollower::DropGuard, StepFollower::AwaitFence,
                   StepFollower::ChangeOver, StepFollower::Compute>;
  // The rank whose steps these are.
  struct Engine {
    Fence& fence;
    Pass pass;
    // Subscriber::staged() and change_over(); empty where no version is ever staged.
    std::function<std::optional<VersionStamp>()> staged;
    std::function<Status(std::chrono::nanoseconds)> change_over;
  };

  // `engine.fence` must outlive it. The thread starts at once.
  StepWorker(Engine engine, Report report);
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
  void execute(const StepFollower::ChangeOver& order);
  void execute(const StepFollower::Compute& order);
  bool stopping();

  Engine engine_;
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
