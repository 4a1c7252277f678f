#include "runtime/copy_helper.h"

#include <algorithm>
#include <system_error>

#include "tensor/stream_copy.h"

namespace changeover::runtime {

CopyHelper::~CopyHelper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begun_.notify_all();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

void CopyHelper::copy(std::span<const update::BulkCopy> copies) {
  start_helpers();
  std::unique_lock lock(mutex_);
  rest_ = copies;
  at_ = 0;
  begun_.notify_all();
  work(lock);
  done_.wait(lock, [this] { return busy_ == 0; });
}

// A system that has no thread left for us costs time, never the update (rule T10).
void CopyHelper::start_helpers() {
  try {
    while (static_cast<int>(helpers_.size()) < helpers_wanted_) {
      helpers_.emplace_back([this] { help(); });
    }
  } catch (const std::system_error&) {
    return;
  }
}

void CopyHelper::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [this] { return stop_ || !rest_.empty(); });
    if (stop_) {
      return;
    }
    work(lock);
  }
}

// Takes chunk after chunk until nothing is left to take.
void CopyHelper::work(std::unique_lock<std::mutex>& lock) {
  ++busy_;
  while (!rest_.empty()) {
    const update::BulkCopy& one = rest_.front();
    const uint64_t at = at_;
    const uint64_t bytes = std::min(kChunkBytes, one.bytes - at);
    at_ += bytes;
    if (at_ == one.bytes) {
      rest_ = rest_.subspan(1);
      at_ = 0;
    }
    lock.unlock();
    tensor::stream_copy(one.to + at, one.from + at, bytes);
    lock.lock();
  }
  if (--busy_ == 0) {
    done_.notify_all();
  }
}

}  // namespace changeover::runtime
