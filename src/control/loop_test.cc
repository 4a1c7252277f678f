#include "control/loop.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

namespace changeover::control {
namespace {

// What two threads post, one after the other under a lock, runs in that order: a welcome posted by
// the loop thread must not be overtaken by a begin posted after it.
TEST(Loop, PostsRunInTheOrderOfTheCallsOverAllThreads) {
  for (int round = 0; round < 200; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int> ran;
    bool posted = false;
    const auto note = [&](int what) {
      const std::lock_guard lock(mutex);
      ran.push_back(what);
      changed.notify_all();
    };
    Loop loop;
    loop.start();
    loop.post([&] {
      std::unique_lock lock(mutex);
      loop.post([&] { note(1); });
      posted = true;
      changed.notify_all();
      changed.wait(lock, [&] { return !posted; });  // Until the other thread has posted as well.
    });
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return posted; });
      loop.post([&] { note(2); });
      posted = false;
      changed.notify_all();
      changed.wait(lock, [&] { return ran.size() == 2; });
    }
    loop.stop();
    ASSERT_EQ(ran, (std::vector<int>{1, 2}));
  }
}

}  // namespace
}  // namespace changeover::control
