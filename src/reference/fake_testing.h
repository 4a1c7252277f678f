// Stand-ins for a rank's fence and memory, for tests of what stands on them.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <changeover/fence.h>
#include <changeover/parameter_store.h>
#include <changeover/subscriber.h>

namespace changeover::reference {

class FakeFence final : public Fence {
 public:
  Result<Guard> acquire(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return version_.has_value(); })) {
      ++refused;
      return Status(Code::kRefused, reason_);
    }
    ++guards_;
    return Guard(this, *version_, 0);
  }
  Result<Guard> acquire_version(VersionStamp version, std::chrono::nanoseconds timeout) override {
    auto guard = acquire(timeout);
    if (guard.ok() && guard->version() != version) {
      return Status(Code::kRefused, "another version is live");
    }
    return guard;
  }
  uint32_t half() const override { return 0; }
  bool up() const override {
    const std::lock_guard lock(mutex_);
    return !version_;
  }
  std::string reason() const override {
    const std::lock_guard lock(mutex_);
    return version_ ? "" : reason_;
  }

  // Waits for the guards inside, as the real one does.
  void raise(std::string reason) {
    std::unique_lock lock(mutex_);
    version_.reset();
    reason_ = std::move(reason);
    changed_.wait(lock, [this] { return guards_ == 0; });
  }
  void lower(VersionStamp version) {
    {
      const std::lock_guard lock(mutex_);
      version_ = version;
    }
    changed_.notify_all();
  }
  // Called once, after the next guard was released.
  void after_next_guard(std::function<void()> what) {
    const std::lock_guard lock(mutex_);
    after_guard_ = std::move(what);
  }
  int guards() const {
    const std::lock_guard lock(mutex_);
    return guards_;
  }
  std::atomic<int> refused = 0;

 private:
  void release_guard(uint32_t) override {
    std::function<void()> after;
    {
      const std::lock_guard lock(mutex_);
      --guards_;
      after = std::exchange(after_guard_, nullptr);
    }
    changed_.notify_all();
    if (after) {
      after();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<VersionStamp> version_;
  std::string reason_ = "version none";
  std::function<void()> after_guard_;
  int guards_ = 0;
};

class FakeStore final : public ParameterStore {
 public:
  explicit FakeStore(const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) {
      memory_.emplace_back(static_cast<size_t>(*byte_count(spec.dtype, spec.shape)));
      parameters_.push_back({spec, memory_.back().data()});
    }
  }
  std::span<const LiveParameter> half(uint32_t index) const override {
    return index == 0 ? parameters_ : std::span<const LiveParameter>();
  }
  Status add_half() override { return {Code::kRefused, "a fake has one half"}; }
  std::span<const Region> regions() const override { return {}; }
  Result<int> lend(uint32_t) override { return Status(Code::kRefused, "a fake lends nothing"); }
  Status replace(uint32_t) override { return {Code::kRefused, "a fake replaces nothing"}; }
  void fill(std::byte value) {
    for (auto& memory : memory_) {
      std::fill(memory.begin(), memory.end(), value);
    }
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<LiveParameter> parameters_;
};

// Takes versions from the test instead of a publisher.
class FakeSubscriber final : public Subscriber {
 public:
  explicit FakeSubscriber(const SubscriberOptions& options) {
    status_.rank = {options.engine, options.rank};
    status_.incarnation.bytes[0] = static_cast<uint8_t>(options.rank + 1);
    status_.phase = "idle";
  }
  Status start() override {
    started = true;
    return start_status;
  }
  Result<RankReport> receive(std::chrono::nanoseconds timeout) override {
    if (receive_blocks) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, timeout, [this] { return stopped.load(); });
      return Status(Code::kAborted, "stopped");
    }
    if (receive_report.error.ok()) {
      commit({0, 1});
    }
    return receive_report;
  }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopped = true;
    }
    changed_.notify_all();
  }
  Fence& fence() override { return fence_; }
  std::optional<VersionStamp> staged() const override {
    const std::lock_guard lock(mutex_);
    return staged_;
  }
  Status change_over(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (staged_) {
      const VersionStamp version = *std::exchange(staged_, std::nullopt);
      lock.unlock();
      commit(version);
      ++changes_over;
    }
    return fence_.acquire(timeout).status();
  }
  RankStatus status() const override {
    const std::lock_guard lock(mutex_);
    RankStatus status = status_;
    status.fenced = fence_.up();
    status.fence_reason = fence_.reason();
    status.gate_open = !status.fenced;
    return status;
  }
  std::optional<RankReport> last_report() const override {
    const std::lock_guard lock(mutex_);
    return report_;
  }
  Result<std::unique_ptr<Reload>> begin_reload(std::optional<VersionStamp>) override {
    return Status(Code::kRefused, "a fake reloads nothing");
  }
  Result<std::unique_ptr<Move>> begin_move(std::string) override {
    return Status(Code::kRefused, "a fake moves nothing");
  }

  void commit(VersionStamp version) {
    {
      const std::lock_guard lock(mutex_);
      status_.version = version;
      status_.phase = "idle";
      ++status_.updates_committed;
      RankReport report;
      report.rank = status_.rank;
      report.outcome = RankOutcome::kCommitted;
      report.version = version;
      report_ = report;
    }
    fence_.lower(version);
  }
  void stage(VersionStamp version) {
    const std::lock_guard lock(mutex_);
    staged_ = version;
  }
  void fence_as(const std::string& phase, const std::string& reason) {
    fence_.raise(reason);
    const std::lock_guard lock(mutex_);
    status_.phase = phase;
  }

  std::atomic<bool> started = false;
  std::atomic<bool> stopped = false;
  std::atomic<int> changes_over = 0;
  Status start_status;
  bool receive_blocks = false;
  RankReport receive_report;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FakeFence fence_;
  RankStatus status_;
  std::optional<VersionStamp> staged_;
  std::optional<RankReport> report_;
};

// Waits for what another thread will bring about; false after ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace changeover::reference
