// One rank's part in the engine's numbered steps. Sans-I/O: events in, actions out, time given.
//
// A step goes prepare, answer, run, done, close; or prepare, answer, cancel. Between answer and
// run the rank holds a guard, so its version cannot change; it gives the guard back by itself when
// the conductor falls silent. A run step is kept apart until the conductor's close (or its next
// prepare) says that every rank ran it: only then it counts.
//
// A rank that could go on to another version says so in its answer: one that is staged and waits
// for a boundary, or in `swap` one that is live already while its guard names the version that the
// engine's steps carry (rule V6). When all ranks can, the conductor says "change" instead of "run".
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

#include <changeover/types.h>

#include "base/instant.h"
#include "reference/step_message.h"
#include "reference/step_statistics.h"

namespace changeover::reference {

struct StepIdentity {
  std::string job;
  std::string engine;
  int32_t rank = 0;
  int32_t engine_size = 1;
  Incarnation incarnation;
};

class StepFollower {
 public:
  struct Options {
    StepIdentity identity;
    // How long a guard is held for a conductor that says nothing. Longer than the conductor waits
    // for answers, so that it cancels first where it lives.
    std::chrono::nanoseconds guard_timeout = std::chrono::seconds(2);
    std::chrono::nanoseconds dial_back_off_min = std::chrono::milliseconds(20);
    std::chrono::nanoseconds dial_back_off_max = std::chrono::seconds(1);
  };

  // What happened.
  struct LinkUp {};
  struct LinkDown {
    std::string why;
  };
  struct Received {
    StepMessage message;
  };
  struct GuardTaken {  // answers TakeGuard
    uint64_t step = 0;
    std::optional<VersionStamp> version;  // none: not given, because
    std::string reason;
    std::optional<VersionStamp> next;  // what this rank could change to
    bool staged = false;               // ... once it is told to, and waits for that
  };
  struct FenceOpen {};  // answers AwaitFence and ChangeOver
  struct Computed {     // answers Compute; the guard is dropped
    uint64_t step = 0;
    uint64_t checksum = 0;
    uint32_t window = 0;
  };
  struct Tick {};  // time passed
  using Event = std::variant<LinkUp, LinkDown, Received, GuardTaken, FenceOpen, Computed, Tick>;

  // What to do.
  struct Dial {};  // answer with LinkUp or LinkDown
  struct CloseLink {};
  struct Send {
    StepMessage message;
  };
  // Without waiting for the fence; replaces an earlier step's guard. Of the version that the
  // engine's steps carry, if it can still be had.
  struct TakeGuard {
    uint64_t step = 0;
    std::optional<VersionStamp> carried;
  };
  struct DropGuard {
    uint64_t step = 0;
  };
  struct AwaitFence {};  // wait until a guard could be had, give it back, say FenceOpen
  struct ChangeOver {};  // let the staged version change over, then as AwaitFence
  struct Compute {       // under the guard of this step
    uint64_t step = 0;
  };
  using Action =
      std::variant<Dial, CloseLink, Send, TakeGuard, DropGuard, AwaitFence, ChangeOver, Compute>;

  explicit StepFollower(Options options) : options_(std::move(options)) {}

  void handle(const Event& event, Instant now);
  std::optional<Action> poll();
  // When Tick is due; Instant::never() if nothing is.
  Instant deadline() const;

  StepStatus status(Instant now) const;
  // The last step that counted here.
  std::optional<StepRecord> last_counted() const { return statistics_.last_record(); }
  bool holds_guard() const { return phase_ == Phase::kHolding || phase_ == Phase::kComputing; }

 private:
  enum class Phase : uint8_t { kIdle, kTaking, kHolding, kComputing };

  void on(const LinkUp&, Instant now);
  void on(const LinkDown& event, Instant now);
  void on(const Received& event, Instant now);
  void on(const GuardTaken& event, Instant now);
  void on(const FenceOpen&, Instant now);
  void on(const Computed& event, Instant now);
  void on(const Tick&, Instant now);

  void prepare(const StepMessage& message, Instant now);
  void run(const StepMessage& message, Instant now);
  void cancel(uint64_t step);
  void change(const StepMessage& message);
  void close(const StepMessage& message);
  void refused(const StepMessage& message);

  void settle(uint64_t last_run);
  void abandon();
  void answer(uint64_t step, std::optional<VersionStamp> version, std::string text,
              std::optional<VersionStamp> next = {});
  void not_run(uint64_t step, std::string text);
  void send(StepMessage message);
  StepMessage blank(StepKind kind, uint64_t step) const;

  Options options_;
  std::deque<Action> actions_;  // A handful per event; drained by poll() before the next.

  bool link_ = false;
  bool welcomed_ = false;
  std::string link_reason_ = "not dialled yet";
  Instant dial_at_{};  // never() while dialling or connected
  std::chrono::nanoseconds back_off_{};

  uint64_t step_ = 0;  // the last one prepared
  Phase phase_ = Phase::kIdle;
  bool open_ = false;  // prepared, and neither run, cancelled nor abandoned yet
  std::optional<VersionStamp> held_;
  std::optional<VersionStamp> carried_;  // what the engine's steps run on, as far as seen here
  std::optional<VersionStamp> staged_;   // waits here for a boundary, when last looked
  Instant guard_deadline_ = Instant::never();
  Instant start_{};
  bool closed_early_ = false;  // the conductor gave up on the step we are computing
  bool awaiting_ = false;      // AwaitFence is under way
  bool tell_ready_ = false;    // answered "cannot": say when that changes
  std::string fence_reason_;
  std::string engine_reason_;  // for whom the conductor waits, as it said last
  std::optional<StepMessage> last_answer_;
  std::optional<StepMessage> last_done_;
  std::optional<StepRun> tentative_;
  StepStatistics statistics_;
};

}  // namespace changeover::reference
