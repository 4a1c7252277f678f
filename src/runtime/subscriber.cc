// Subscriber: checks, a thread if asked for one, and reloads. The work is rank_driver's.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <changeover/subscriber.h>

#include <unistd.h>

#include "os/entropy.h"
#include "os/mapping.h"
#include "runtime/commit_hook.h"
#include "runtime/copy_helper.h"
#include "runtime/fence_status.h"
#include "runtime/file_rank.h"
#include "runtime/rank_driver.h"
#include "runtime/rank_log.h"
#include "runtime/subscriber_options.h"

namespace changeover {
namespace {

using runtime::check_options;
using runtime::drain_time;
using runtime::log_line;
using runtime::run_commit_hook;

constexpr auto kRefusedPause = std::chrono::seconds(1);

class SubscriberImpl final : public Subscriber {
 public:
  SubscriberImpl(SubscriberOptions options, LoadPlan plan, ParameterStore& store)
      : options_(std::move(options)),
        plan_(std::move(plan)),
        store_(store),
        // The publisher waits a little longer for the answer to its begin.
        fence_(drain_time(options_), options_.deadlines.begin / 2, clock_,
               [this] { return given_up(); }),
        copier_(options_.copy_threads) {}
  ~SubscriberImpl() override { stop(); }

  Status build();

  Status start() override;
  Result<RankReport> receive(std::chrono::nanoseconds timeout) override;
  void stop() override;
  Fence& fence() override { return fence_; }
  std::optional<VersionStamp> staged() const override;
  Status change_over(std::chrono::nanoseconds timeout) override;
  RankStatus status() const override;
  std::optional<RankReport> last_report() const override;
  Result<std::unique_ptr<Reload>> begin_reload(std::optional<VersionStamp> version) override;
  Result<std::unique_ptr<Move>> begin_move(std::string what) override;

  std::mutex& driving() { return driving_; }
  update::Transaction& transaction() { return *transaction_; }
  Status finish_reload();
  Status finish_move(LoadPlan plan);
  void end_move();

 private:
  // Names the move in flight.
  Status may_begin() const;
  bool is_file() const { return options_.endpoint.kind == Endpoint::Kind::kFile; }
  // What was changed without the driver, by a reload or from a file: to the publisher and status().
  void tell_held();
  Status ensure_connected();
  // Made once, by the thread that starts or receives; any thread may ask.
  runtime::RankDriver* driver() const {
    const std::lock_guard lock(driver_mutex_);
    return driver_.get();
  }
  Status given_up() const;
  void run();
  Result<std::optional<RankReport>> turn(Instant until);
  void await_release();

  const SubscriberOptions options_;
  LoadPlan plan_;  // Changed by a move alone, under `driving_`.
  ParameterStore& store_;
  os::SystemClock clock_;
  runtime::WaitingFence fence_;
  pid_t built_in_ = 0;
  bool reloaded_ = false;  // Something was written since: a child cannot begin as if it had not.
  Incarnation incarnation_;
  os::Mapping journal_;
  runtime::CopyHelper copier_;
  std::unique_ptr<update::Transaction> transaction_;

  // Held by whoever drives the rank or writes through its transaction.
  std::mutex driving_;
  mutable std::mutex driver_mutex_;  // The pointer below, not what it points to.
  std::unique_ptr<runtime::RankDriver> driver_;
  std::optional<VersionStamp> held_version_;  // What status() says as long as there is no driver.
  std::optional<Digest> held_digest_;
  std::optional<RankReport> file_report_;
  mutable std::mutex move_mutex_;
  std::optional<std::string> move_;   // What moves.
  std::optional<RankReport> unread_;  // Of an update that ended while a release was waited for.
  std::thread thread_;
  std::atomic<bool> stopped_{false};
};

class ReloadImpl final : public Subscriber::Reload {
 public:
  explicit ReloadImpl(SubscriberImpl& owner) : owner_(owner) {}
  ~ReloadImpl() override {
    const std::lock_guard lock(owner_.driving());
    if (open_) {
      owner_.transaction().drop_reload();
    }
  }
  Status write(std::string_view source_name, const TensorView& tensor) override {
    const std::lock_guard lock(owner_.driving());
    CHANGEOVER_TRY(check());
    return owner_.transaction().reload_tensor(source_name, tensor);
  }
  Status finish() override {
    const std::lock_guard lock(owner_.driving());
    CHANGEOVER_TRY(check());
    open_ = false;
    return owner_.finish_reload();
  }

 private:
  // A handle that is over must not write into the next one's reload.
  Status check() const {
    return open_ ? Status() : Status(Code::kRefused, "this reload was finished: begin another");
  }

  SubscriberImpl& owner_;
  bool open_ = true;
};

class MoveImpl final : public Subscriber::Move {
 public:
  explicit MoveImpl(SubscriberImpl& owner) : owner_(owner) {}
  ~MoveImpl() override {
    if (!finished_) {
      owner_.end_move();
    }
  }
  Status finish(LoadPlan plan) override {
    if (finished_) {
      return {Code::kInvalidArgument, "this move is finished"};
    }
    CHANGEOVER_TRY(owner_.finish_move(std::move(plan)));
    finished_ = true;
    return {};
  }

 private:
  SubscriberImpl& owner_;
  bool finished_ = false;
};

// Everything but sockets and threads; again in a child process, which must not share an
// incarnation with its parent.
Status SubscriberImpl::build() {
  CHANGEOVER_TRY_ASSIGN(incarnation_, os::draw_incarnation());
  update::TransactionOptions options;
  options.rank = {options_.engine, options_.rank};
  options.incarnation = incarnation_;
  options.mode = options_.mode;
  if (options_.mode == Mode::kJournal) {
    CHANGEOVER_TRY_ASSIGN(const uint64_t bytes, update::journal_bytes(plan_));
    if (bytes > 0) {
      CHANGEOVER_TRY_ASSIGN(const os::Fd fd, os::create_memory("changeover-journal", bytes));
      CHANGEOVER_TRY_ASSIGN(journal_, os::Mapping::map(fd, bytes, os::Access::kReadWrite));
      options.journal = journal_.span();
    }
  }
  if (options_.mode == Mode::kStaged || options_.mode == Mode::kSwap) {
    if (Status status = store_.add_half(); !status.ok()) {
      return status.with_context("mode " + std::string(mode_name(options_.mode)));
    }
    options.second = store_.half(1);
    options.copier = &copier_;
  }
  CHANGEOVER_TRY_ASSIGN(transaction_, update::Transaction::make(plan_, store_.parameters(),
                                                                fence_.state(), fence_, options));
  built_in_ = getpid();
  return {};
}

Status SubscriberImpl::ensure_connected() {
  if (driver_) {
    driver_->reconnect();
    return {};
  }
  if (built_in_ != getpid()) {
    if (reloaded_) {
      return {Code::kRefused,
              "a reload was begun before this process was forked: open the "
              "subscriber in the process that serves"};
    }
    CHANGEOVER_TRY(build());
  }
  auto driver = std::make_unique<runtime::RankDriver>(
      runtime::RankDriver::Parts{options_, plan_, clock_, fence_, *transaction_,
                                 [this] { return may_begin(); }},
      incarnation_);
  driver->connect();
  const std::lock_guard lock(driver_mutex_);
  driver_ = std::move(driver);
  return {};
}

Status SubscriberImpl::start() {
  if (is_file()) {
    return {Code::kInvalidArgument, "a recorded stream has one update: call receive()"};
  }
  if (thread_.joinable() || stopped_) {
    return {Code::kRefused, stopped_ ? "stopped" : "started already"};
  }
  CHANGEOVER_TRY(ensure_connected());
  thread_ = std::thread([this] { run(); });
  return {};
}

// Reports and refusals are kept for status() and last_report(). A rank that was refused asks again:
// the mistake may be another's (a peer with a wrong engine size, an earlier publisher's job).
void SubscriberImpl::run() {
  while (!driver_->interrupted()) {
    driver_->wait(Instant::never());
    const std::lock_guard lock(driving_);
    if (!driver_->turn().ok()) {
      driver_->reconnect_at(clock_.now() + kRefusedPause);
    }
  }
}

Result<RankReport> SubscriberImpl::receive(std::chrono::nanoseconds timeout) {
  if (thread_.joinable() || stopped_) {
    return Status(Code::kRefused, stopped_ ? "stopped" : "a receive thread was started");
  }
  if (is_file()) {
    const std::lock_guard lock(driving_);
    CHANGEOVER_TRY(may_begin());
    auto report = runtime::receive_file(options_, clock_, fence_, *transaction_);
    if (report.ok()) {
      const std::lock_guard kept(driver_mutex_);
      file_report_ = *report;
    }
    tell_held();
    return report;
  }
  CHANGEOVER_TRY(ensure_connected());
  if (auto report = std::exchange(unread_, std::nullopt)) {
    return *report;
  }
  const Instant until = clock_.now() + timeout;
  for (;;) {
    CHANGEOVER_TRY_ASSIGN(auto report, turn(until));
    if (report) {
      if (report->outcome == RankOutcome::kCommitted) {
        await_release();
      }
      return *report;
    }
    if (driver_->interrupted()) {
      return Status(Code::kRefused, "stopped");
    }
    if (clock_.now() >= until && driver_->idle()) {
      return Status(
          Code::kDeadline,
          "no update ended within the time given; last: " +
              (status().last_error.ok() ? status().phase : status().last_error.to_string()));
    }
  }
}

Result<std::optional<RankReport>> SubscriberImpl::turn(Instant until) {
  driver_->wait(until);
  const std::lock_guard lock(driving_);
  return driver_->turn();
}

// Whoever receives one update and serves next would stand at a gate that only this thread opens.
void SubscriberImpl::await_release() {
  const Instant until = clock_.now() + options_.deadlines.vote;
  while (!fence_.is_open() && driver_->idle() && !driver_->interrupted() && clock_.now() < until) {
    auto next = turn(until);
    if (!next.ok()) {
      return;  // Refused by the publisher: status() has it.
    }
    unread_ = *std::move(next);
    if (unread_) {
      return;
    }
  }
}

// Asked by the fence while a step is waited for.
Status SubscriberImpl::given_up() const {
  if (stopped_) {
    return {Code::kAborted, "this rank stops"};
  }
  const runtime::RankDriver* const driver = this->driver();
  return driver == nullptr ? Status() : driver->given_up();
}

void SubscriberImpl::stop() {
  if (stopped_.exchange(true)) {
    return;
  }
  runtime::RankDriver* const driver = this->driver();
  if (driver != nullptr) {
    driver->interrupt();
  }
  fence_.wake_writer();
  if (thread_.joinable()) {
    thread_.join();
  }
  const std::lock_guard lock(driving_);
  if (driver != nullptr) {
    driver->stop();
  }
}

std::optional<VersionStamp> SubscriberImpl::staged() const {
  const runtime::RankDriver* const driver = this->driver();
  const auto staged = driver == nullptr ? std::nullopt : driver->staged();
  return staged ? std::optional(staged->version) : std::nullopt;
}

// The fence is still open when the boundary is told, so its rise is waited for too: who comes back
// from here finds the new version, or knows that there is none.
Status SubscriberImpl::change_over(std::chrono::nanoseconds timeout) {
  const Instant until = clock_.now() + timeout;
  runtime::RankDriver* const driver = this->driver();
  if (driver != nullptr) {
    if (const auto staged = driver->staged()) {
      driver->at_boundary(staged->id);
    }
    CHANGEOVER_TRY(driver->wait_for_boundary(until));
  }
  return fence_.acquire(until == Instant::never() ? timeout : until - clock_.now()).status();
}

RankStatus SubscriberImpl::status() const {
  const std::lock_guard lock(driver_mutex_);
  if (driver_) {
    return driver_->status();
  }
  RankStatus status;
  status.rank = {options_.engine, options_.rank};
  status.incarnation = incarnation_;
  status.version = held_version_;
  status.digest = held_digest_;
  status.phase = "idle";
  if (file_report_) {
    const bool committed = file_report_->outcome == RankOutcome::kCommitted;
    status.updates_committed = committed ? 1 : 0;
    status.updates_aborted = committed ? 0 : 1;
    status.last_error = file_report_->error;
  }
  runtime::add_fence(fence_.state(), status);
  return status;
}

std::optional<RankReport> SubscriberImpl::last_report() const {
  const std::lock_guard lock(driver_mutex_);
  return driver_ ? driver_->last_report() : file_report_;
}

Result<std::unique_ptr<Subscriber::Reload>> SubscriberImpl::begin_reload(
    std::optional<VersionStamp> version) {
  const Status busy(Code::kRefused, "an update is open here: reload when it has ended (rule T9)");
  runtime::RankDriver* const driver = this->driver();
  if (driver != nullptr && driver->streaming()) {
    return busy;  // Not waited for: it may take long.
  }
  const std::lock_guard lock(driving_);
  if (driver != nullptr && !driver->idle()) {
    return busy;
  }
  CHANGEOVER_TRY(may_begin());
  CHANGEOVER_TRY(transaction_->begin_reload(version));
  reloaded_ = true;
  tell_held();
  return std::unique_ptr<Reload>(std::make_unique<ReloadImpl>(*this));
}

Result<std::unique_ptr<Subscriber::Move>> SubscriberImpl::begin_move(std::string what) {
  const Status busy(Code::kRefused,
                    "an update is open here: move " + what + " when it has ended (rule T15)");
  runtime::RankDriver* const driver = this->driver();
  if (driver != nullptr && driver->streaming()) {
    return busy;  // Not waited for: it may take long.
  }
  const std::lock_guard lock(driving_);
  if ((driver != nullptr && !driver->idle()) || transaction_->is_open()) {
    return busy;
  }
  CHANGEOVER_TRY(may_begin());
  const std::lock_guard moving(move_mutex_);
  move_ = std::move(what);
  return std::unique_ptr<Move>(std::make_unique<MoveImpl>(*this));
}

Status SubscriberImpl::may_begin() const {
  const std::lock_guard lock(move_mutex_);
  return move_ ? Status(Code::kRefused, "a move is in flight here: " + *move_ +
                                            "; begin again when it has ended (rule T15)")
               : Status();
}

Status SubscriberImpl::finish_move(LoadPlan plan) {
  const std::lock_guard lock(driving_);
  if (plan.generation <= plan_.generation) {
    return {Code::kRefused, "a load plan of generation " + std::to_string(plan.generation) +
                                ", this rank follows generation " +
                                std::to_string(plan_.generation) +
                                ": a layout that moved needs a higher one (rule T15)"};
  }
  CHANGEOVER_TRY(check_options(options_, plan));
  if (plan.paddings != plan_.paddings) {
    return {Code::kInvalidArgument,
            "padding lies elsewhere in the new load plan: that needs a new store and subscriber"};
  }
  CHANGEOVER_TRY(transaction_->replan(plan, store_.parameters()));
  plan_ = std::move(plan);
  if (runtime::RankDriver* const driver = this->driver()) {
    driver->replan();
  }
  end_move();
  return {};
}

void SubscriberImpl::end_move() {
  const std::lock_guard lock(move_mutex_);
  move_.reset();
}

// A rank that is an engine of its own may step. Elsewhere the others may hold another version: the
// gate stays shut until the publisher knows that all hold this one (rule V6).
Status SubscriberImpl::finish_reload() {
  if (Status status = transaction_->finish_reload(); !status.ok()) {
    tell_held();
    return status;
  }
  if (options_.on_commit) {
    log_line(options_,
             "reloaded, cache policy " + options_.cache_policy + ": " + run_commit_hook(options_));
  }
  if (options_.engine_size == 1) {
    fence_.state().open_gate();
    fence_.wake_readers();
  }
  tell_held();
  return {};
}

void SubscriberImpl::tell_held() {
  {
    const std::lock_guard lock(driver_mutex_);
    held_version_ = transaction_->version();
    held_digest_ = transaction_->digest();
  }
  if (runtime::RankDriver* const driver = this->driver()) {
    driver->reloaded();
  }
}

}  // namespace

Result<std::unique_ptr<Subscriber>> Subscriber::open(SubscriberOptions options, LoadPlan plan,
                                                     ParameterStore& store) {
  CHANGEOVER_TRY(check_options(options, plan));
  auto subscriber = std::make_unique<SubscriberImpl>(std::move(options), std::move(plan), store);
  CHANGEOVER_TRY(subscriber->build());
  return std::unique_ptr<Subscriber>(std::move(subscriber));
}

}  // namespace changeover
