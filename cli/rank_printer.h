// Says what happens to a running rank: one line whenever its state has changed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <changeover/reference_rank.h>
#include <changeover/steps.h>
#include <changeover/subscriber.h>

namespace changeover::cli {

// Looks at the rank five times a second on a thread of its own until it is destroyed; the rank must
// live longer. Text for people, or one JSON object a line.
class RankPrinter {
 public:
  RankPrinter(const ReferenceRank& rank, std::string from, bool json);
  ~RankPrinter();
  RankPrinter(const RankPrinter&) = delete;
  RankPrinter& operator=(const RankPrinter&) = delete;

 private:
  void run();
  void look();
  void print(const std::string& text, const RankStatus& status, const StepStatus& steps) const;

  const ReferenceRank& rank_;
  const std::string from_;
  const bool json_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<RankStatus> last_;
  std::string last_waiting_for_;
  std::string update_error_;  // Of the last update that failed; empty before the first.
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace changeover::cli
