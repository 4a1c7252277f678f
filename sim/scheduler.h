// Virtual time: events in order of their instant, ties in order of scheduling. Nothing else decides
// what happens when, so one seed is one history.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/instant.h"

namespace changeover::sim {

class Scheduler {
 public:
  Instant now() const { return now_; }

  void at(Instant when, std::function<void()> what) {
    queue_.push({std::max(when, now_), ++sequence_, std::move(what)});
  }
  void after(std::chrono::nanoseconds delay, std::function<void()> what) {
    at(now_ + delay, std::move(what));
  }

  // Runs everything up to and at `until`; time then stands there.
  void run_until(Instant until) {
    while (!queue_.empty() && queue_.top().when <= until) {
      // The queue gives const access only; the entry is popped before it is used.
      Entry entry = std::move(const_cast<Entry&>(queue_.top()));
      queue_.pop();
      now_ = entry.when;
      entry.what();
    }
    now_ = until;
  }

 private:
  struct Entry {
    Instant when;
    uint64_t sequence = 0;
    std::function<void()> what;
    bool operator<(const Entry& other) const {  // the queue's top is its largest
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  std::priority_queue<Entry> queue_;
  Instant now_;
  uint64_t sequence_ = 0;
};

}  // namespace changeover::sim
