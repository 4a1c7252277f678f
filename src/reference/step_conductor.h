// Rank 0's other part: it conducts the engine's numbered steps. Sans-I/O, one machine per engine.
//
// A step goes only when all ranks of the engine are here, all hold a guard, and all guards are of
// one (epoch, version); it counts only when all ranks ran it (rule V6). Numbers never come back:
// a restarted conductor goes on after the highest number its followers have seen. After "cannot"
// the machine waits for that rank's "ready"; it does not ask in a loop.
//
// It picks the boundary at which the engine goes on to another version (rule V6): the first time
// that all ranks are between two steps and can change to one version. An engine that takes no step,
// because a rank cannot, is at a boundary all the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <changeover/types.h>

#include "base/instant.h"
#include "reference/step_follower.h"
#include "reference/step_message.h"

namespace changeover::reference {

class StepConductor {
 public:
  struct Options {
    StepIdentity identity;
    std::chrono::nanoseconds interval = std::chrono::milliseconds(20);  // start to start
    std::chrono::nanoseconds answer_timeout = std::chrono::milliseconds(500);
    std::chrono::nanoseconds run_timeout = std::chrono::seconds(5);
    std::chrono::nanoseconds hello_timeout = std::chrono::seconds(2);
    // When a rank that said "cannot" is asked again although it never said "ready".
    std::chrono::nanoseconds ask_again = std::chrono::seconds(1);
    // When a rank that did not answer at all is asked again.
    std::chrono::nanoseconds silent_again = std::chrono::seconds(10);
    // When ranks that hold different versions are asked again.
    std::chrono::nanoseconds mismatch_again = std::chrono::milliseconds(250);
    size_t strangers_max = 16;  // links without a hello; one more is closed at once
  };

  using LinkId = uint64_t;  // chosen by the caller, never reused

  struct LinkOpened {
    LinkId link = 0;
  };
  struct LinkClosed {
    LinkId link = 0;
  };
  struct Received {
    LinkId link = 0;
    StepMessage message;
  };
  struct Tick {};
  using Event = std::variant<LinkOpened, LinkClosed, Received, Tick>;

  struct Send {
    LinkId link = 0;
    StepMessage message;
  };
  struct CloseLink {
    LinkId link = 0;
    std::string why;
  };
  using Action = std::variant<Send, CloseLink>;

  explicit StepConductor(Options options);

  void handle(const Event& event, Instant now);
  std::optional<Action> poll();
  Instant deadline() const;

  // Why no step runs; empty while one does or the next only waits for its interval.
  std::string waiting_for() const;
  uint64_t step() const { return step_; }
  uint64_t last_run() const { return last_run_; }

 private:
  enum class Phase : uint8_t { kIdle, kPreparing, kRunning };
  struct Peer {
    std::optional<LinkId> link;
    Incarnation incarnation;
    bool answered = false;                // in the present phase
    std::optional<VersionStamp> version;  // of its guard
    std::optional<VersionStamp> next;     // what it can change to
    Instant ask_at{};                     // not asked before
    std::string reason;                   // why it could not, or did not answer
  };
  struct Stranger {
    Instant deadline;
  };

  void on(const LinkOpened& event, Instant now);
  void on(const LinkClosed& event, Instant now);
  void on(const Received& event, Instant now);
  void on(const Tick&, Instant now);

  void hello(LinkId link, const StepMessage& message);
  std::string refusal(const StepMessage& message) const;
  void answer(Peer& peer, const StepMessage& message, Instant now);
  void done(Peer& peer, const StepMessage& message, Instant now);
  void try_start(Instant now);
  void go(Instant now);
  // What all ranks hold after a change, if one is due.
  std::optional<VersionStamp> change_due() const;
  void change(VersionStamp version, Instant now);
  // No step runs, because a rank cannot: the others may change over.
  void change_idle_ranks();
  void cancel();
  void finish(bool counts);
  void overdue(Instant now);
  void send_all(StepMessage message);
  void refuse(LinkId link, std::string text);
  bool all_here() const;
  bool all_answered() const;
  // With what is waited for, if anything is.
  StepMessage welcome() const;
  StepMessage pause() const;
  StepMessage blank(StepKind kind) const;

  Options options_;
  std::deque<Action> actions_;  // At most two per rank and event; drained by poll().
  std::map<LinkId, Stranger> strangers_;
  std::map<LinkId, int32_t> ranks_;  // links with an accepted hello
  std::vector<Peer> peers_;          // by rank
  Phase phase_ = Phase::kIdle;
  uint64_t step_ = 0;
  uint64_t last_run_ = 0;
  Instant phase_deadline_ = Instant::never();
  Instant start_at_{};
  std::string mismatch_;
};

}  // namespace changeover::reference
