// Large copies by the caller and a few threads of ours, which are started by the first of them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "update/bulk_copier.h"

namespace changeover::runtime {

class CopyHelper final : public update::BulkCopier {
 public:
  // `threads`: that copy at once, the caller's among them.
  explicit CopyHelper(int threads) : helpers_wanted_(threads - 1) {}
  ~CopyHelper() override;

  // One caller at a time.
  void copy(std::span<const update::BulkCopy> copies) override;

 private:
  static constexpr uint64_t kChunkBytes = 4 << 20;

  void start_helpers();
  void help();
  void work(std::unique_lock<std::mutex>& lock);

  const int helpers_wanted_;
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  // Of the copy in progress: what nobody has taken yet starts at byte `at_` of the first.
  std::span<const update::BulkCopy> rest_;
  uint64_t at_ = 0;
  int busy_ = 0;  // Threads that copy a chunk.
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace changeover::runtime
