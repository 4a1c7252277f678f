// A rank's side: dials the publisher, receives updates into live memory, votes, serves.
//
//   auto subscriber = Subscriber::open(options, plan, store);
//   (*subscriber)->start();                       // or call receive() on a thread of yours
//   while (serving) {
//     auto guard = (*subscriber)->fence().acquire(1s);  // before every forward and prefill
//     if (!guard.ok()) continue;                  // fenced: says why; do not serve
//     forward(guard->version());                  // one whole version until guard is dropped
//   }
//
// In `swap` its weights are store.half(guard->half()); else always store.parameters().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <changeover/endpoint.h>
#include <changeover/fence.h>
#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/report.h>
#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover {

// How long each wait may last (rule R7): 1 ms to 24 hours each.
struct Deadlines {
  std::chrono::nanoseconds connect = std::chrono::seconds(10);
  std::chrono::nanoseconds begin = std::chrono::seconds(5);
  std::chrono::nanoseconds stall = std::chrono::seconds(10);  // no byte moved
  std::chrono::nanoseconds vote = std::chrono::seconds(10);
  // Fence up, steps still inside; in `staged`, where the vote waits for it, at most vote / 4.
  // Shorter than `stall`, the publisher's too: while a rank waits here it reads nothing.
  std::chrono::nanoseconds drain = std::chrono::seconds(5);
};

struct SubscriberOptions {
  Endpoint endpoint;
  std::string job = "default";  // Peers of another job are refused by name (case N10).
  std::string engine;
  int32_t rank = 0;         // Index within the engine; LoadPlan::tp_rank.
  int32_t engine_size = 1;  // All ranks that run one forward pass together.
  Mode mode = Mode::kJournal;
  std::string token;               // Empty = none; then only loopback and shm are allowed.
  uint64_t payload_bytes_max = 0;  // Ceiling of one frame's payload; 0 = the host's limit.
  uint64_t metadata_bytes_max = 64ull << 20;
  // `staged`: the engine says when the fence may rise, by change_over() at a step boundary that all
  // its ranks agree on (rule V6). False: it rises once all is checked and no step is inside.
  bool engine_picks_boundary = false;
  // `staged`: how many threads copy the second half into live memory, the subscriber's own among
  // them; the others are started by the first copy.
  int32_t copy_threads = 2;
  Deadlines deadlines;
  // Called once per commit before requests are admitted (rule T12); its text goes into the report.
  std::string cache_policy = "none";
  std::function<std::string()> on_commit;
  // Test and demo hook: called after each run of bytes was applied, with the payload bytes so far.
  std::function<void(uint64_t)> on_progress;
  // Refusals, losses and warnings, one line each; from the subscriber's threads, must not block.
  std::function<void(std::string_view line)> log;
};

// What a rank says of itself.
struct RankStatus {
  RankName rank;
  Incarnation incarnation;
  std::optional<VersionStamp> version;  // Committed and whole; none before the first commit.
  std::optional<Digest> digest;
  bool fenced = false;
  std::string fence_reason;  // Empty unless fenced.
  bool gate_open = false;    // True when steps may run: not fenced and released (rule V6).
  std::string phase;         // "idle", "receiving", "staged", "prepared", "in_doubt", ...
  bool connected = false;
  uint64_t updates_committed = 0;
  uint64_t updates_aborted = 0;
  Status last_error;
};

class Subscriber {
 public:
  virtual ~Subscriber() = default;

  // Checks everything that can be checked alone (plan against store, mode, token policy) and makes
  // what the mode needs: the journal, or the store's second half; kExhausted with the numbers
  // before either is mapped. Starts no thread and opens no connection: fork-safe until start(),
  // receive() or begin_reload(), after which a child's start() is refused. `store` must outlive the
  // subscriber.
  static Result<std::unique_ptr<Subscriber>> open(SubscriberOptions options, LoadPlan plan,
                                                  ParameterStore& store);

  // Owns one receive thread from now on: dials with back-off, takes every update, re-dials when
  // the publisher went away or refused it. Or receive() takes one update on the caller's thread.
  virtual Status start() = 0;
  // Blocks until one update ended here (committed, restored, fenced, in doubt) or `timeout` ran
  // out (kDeadline, nothing changed). After a commit it also waits, up to `deadlines.vote`, until
  // steps are let in: between two calls nobody listens to the publisher. Not together with start().
  virtual Result<RankReport> receive(std::chrono::nanoseconds timeout) = 0;
  // Ends the thread; an update in flight is aborted as if the rank had died. Idempotent.
  virtual void stop() = 0;

  // The one way into serving (rule T7).
  virtual Fence& fence() = 0;

  // The version that is received and checked here and waits for change_over(). Any thread.
  virtual std::optional<VersionStamp> staged() const = 0;
  // Between two steps, with no guard held on this thread: lets the staged version change over, if
  // one is staged, and waits for the fence to fall and the gate to open. kRefused with the reason
  // if that takes longer. Any thread.
  virtual Status change_over(std::chrono::nanoseconds timeout) = 0;

  virtual RankStatus status() const = 0;
  // The last update's report; none before the first.
  virtual std::optional<RankReport> last_report() const = 0;

  // A reload outside any update (files, another loader), counted by the same ledger (rule T9):
  // raises the fence, hands out a handle that takes whole parameters or pieces by source name, and
  // lifts the fence only when every parameter was rewritten under one declared version. A handle
  // that goes without finish() ends its reload with the fence up. It must go before the subscriber.
  class Reload {
   public:
    virtual ~Reload() = default;
    virtual Status write(std::string_view source_name, const TensorView& tensor) = 0;
    virtual Status finish() = 0;
  };
  // In an engine of more than one rank steps wait from then on until the publisher, which hears of
  // it, has found one version of one digest on all its ranks (rule V6); without a version that is
  // after the next update. `on_commit` has run by the time finish() returns (rule T12).
  // `version` none = "unknown": reloads that name none count as one and leave a warning.
  virtual Result<std::unique_ptr<Reload>> begin_reload(std::optional<VersionStamp> version) = 0;

  // Experts, or whatever the plan places, are about to move between slots of the live parameters
  // (rule T15). While a Move lives no update begins here: a begin is refused with `what`.
  // kRefused while an update is open or another Move lives.
  class Move {
   public:
    // Unfinished: nothing has moved, the plan stands.
    virtual ~Move() = default;
    // The parameters now lie as `plan` says: the same ones, by a plan of a higher generation, which
    // the next updates follow; the rank tells the publisher so. Every rank of the engine does it:
    // until then the engine takes part in no update. Not ok: the move is still in flight.
    virtual Status finish(LoadPlan plan) = 0;
  };
  // The Move must not outlive the subscriber. Any thread.
  virtual Result<std::unique_ptr<Move>> begin_move(std::string what) = 0;
};

}  // namespace changeover
