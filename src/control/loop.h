// One thread that runs the control channel's sockets and timers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace changeover::control {

class Loop {
 public:
  Loop();
  ~Loop();  // stop()
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The thread starts here and not before (fork-safe until then).
  void start();
  // Ends the thread after the handler in progress; what was posted but not begun is dropped. Not
  // from the loop thread. Idempotent.
  void stop();

  // Any thread. Runs `work` on the loop thread, in the order of the calls.
  void post(std::function<void()> work);
  // Loop thread. One timer: a later call replaces an earlier one.
  void set_timer(std::chrono::nanoseconds from_now, std::function<void()> work);
  void cancel_timer();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace changeover::control
