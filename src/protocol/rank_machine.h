// A rank's whole life on the control channel: hello, begin, receive, vote, decision, release, and
// what a lost connection means in each of these (rules T1-T3, V2, V3, V5, V6). Sans I/O: events in,
// actions out, time as an argument.
//
// The driver owns the transaction's thread: it feeds every event from there, and after each one
// polls until there is no action. Frames go from the driver's stream receiver straight to the
// transaction; this machine hears how the stream ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <changeover/report.h>
#include <changeover/subscriber.h>
#include <changeover/types.h>

#include "base/instant.h"
#include "protocol/messages.h"
#include "update/transaction.h"

namespace changeover::protocol {

struct RankMachineOptions {
  Hello hello;  // identity and limits; the machine fills version, digest, fenced, gate, prepared
  Deadlines deadlines;
  std::string road;         // for the report: "shm", "tcp"
  std::string road_reason;  // why this one (rule M6)
  std::string cache_policy = "none";
  // `staged`: the fence waits for an AtBoundary; else it rises as soon as it can.
  bool engine_picks_boundary = false;
  // Not ok while something goes on here that no update may overlap with (experts that move between
  // slots, rule T15): a begin is refused with it. Empty = nothing ever does.
  std::function<Status()> may_begin;
};

class RankMachine {
 public:
  // --- events
  struct Connected {};  // the channel is up and the token accepted
  struct Disconnected {
    Status why;
  };
  struct Received {
    Message message;
  };
  // The road carries the first frame of the stream that OpenStream asked for.
  struct StreamStarted {};
  // END arrived (`status`: ok, or what failed and was drained), or the rank is out of step.
  struct StreamEnded {
    Status status;
    bool out_of_step = false;
    uint64_t payload_bytes = 0;
  };
  // The engine is between two steps, at a boundary that all its ranks agree on (rule V6), and this
  // update, which staged_update() named, may change over.
  struct AtBoundary {
    UpdateId id;
  };
  // The fence rose for the open update, at that time: it had been down.
  struct FenceRose {
    Instant at;
  };
  // Check, Prepare and ChangeOver were done.
  struct Checked {
    Status status;
  };
  struct Prepared {
    Status status;
  };
  struct ChangedOver {
    std::string cache_result;  // What the commit hook said (rule T12).
  };
  struct Reloaded {};  // what the rank holds was changed outside any update (rule T9)
  struct Tick {};      // deadline() has passed
  struct Stop {};      // the process ends: as if it had died
  using Event =
      std::variant<Connected, Disconnected, Received, StreamStarted, StreamEnded, AtBoundary,
                   FenceRose, Checked, Prepared, ChangedOver, Reloaded, Tick, Stop>;

  // --- actions
  struct Send {
    Message message;
  };
  // Join the data road's stream now and feed it to the transaction, expecting `version`; BeginReply
  // follows this action, so the rank listens before the publisher sends.
  struct OpenStream {
    UpdateId id;
    uint64_t stream_id = 0;
    VersionStamp version;
    uint64_t payload_bytes_total = 0;
  };
  // Leave it; no StreamEnded is expected any more (one that comes is ignored).
  struct CloseStream {
    Status why;
  };
  // Close the control connection; dial again with back-off if `retry`.
  struct CloseConnection {
    Status why;
    bool retry = true;
  };
  // Check, prepare or finish the transaction and run the commit hook, and say that it was done
  // before any other event: it may take long, and its time counts.
  struct Check {
    std::optional<Digest> source;
  };
  struct Prepare {
    std::optional<Digest> source;
  };
  struct ChangeOver {};
  struct UpdateEnded {
    RankReport report;
  };
  using Action = std::variant<Send, OpenStream, CloseStream, CloseConnection, Check, Prepare,
                              ChangeOver, UpdateEnded>;

  enum class Phase : uint8_t {
    kIdle,
    kReceiving,  // begun: the stream is open or about to be
    kEnded,      // END is here, the source's digest is not
    kStaged,     // all is checked here and the engine serves on: until the publisher has checked
                 // its source, and from there to the next step boundary
    kPrepared,   // voted yes, waiting for the decision
    kInDoubt,    // as kPrepared, and a wait for the decision has run out
    kFinishing,  // the decision is carried out
  };

  // `transaction` and `fence` must outlive the machine and be used by its thread alone (`fence`'s
  // readers may be anywhere).
  RankMachine(RankMachineOptions options, update::Transaction& transaction,
              update::FenceState& fence);

  void handle(const Event& event, Instant now);
  std::optional<Action> poll();
  // When to send Tick at the latest; never() if nothing is waited for.
  Instant deadline() const;

  // The load plan is another one from now on: the next hello says so. Idle only.
  void set_plan(const Digest& digest, uint64_t generation) {
    options_.hello.plan_digest = digest;
    options_.hello.plan_generation = generation;
  }

  Phase phase() const { return phase_; }
  const UpdateId& update() const { return id_; }  // the open one, or the last
  // The update that waits for the engine's boundary.
  std::optional<UpdateId> staged_update() const {
    return phase_ == Phase::kStaged && !digest_->checking ? std::optional(id_) : std::nullopt;
  }
  std::string_view phase_text() const;  // "disconnected", "idle", "receiving", "in_doubt", ...
  bool connected() const { return welcomed_; }
  const std::optional<RankReport>& last_report() const { return last_report_; }
  uint64_t updates_committed() const { return committed_; }
  uint64_t updates_aborted() const { return aborted_; }

 private:
  // What this rank once said about an update, to be said again when asked again.
  struct Answers {
    UpdateId id;
    std::optional<BeginReply> begin;
    std::optional<Vote> vote;
    std::optional<Finished> finished;
  };
  static constexpr size_t kAnswersMax = 8;

  void on(const Connected& event, Instant now);
  void on(const Disconnected& event, Instant now);
  void on(const Received& event, Instant now);
  void on(const StreamStarted& event, Instant now);
  void on(const StreamEnded& event, Instant now);
  void on(const AtBoundary& event, Instant now);
  void on(const FenceRose& event, Instant now);
  void on(const Checked& event, Instant now);
  void on(const Prepared& event, Instant now);
  void on(const ChangedOver& event, Instant now);
  void on(const Reloaded& event, Instant now);
  void on(const Tick& event, Instant now);
  void on(const Stop& event, Instant now);
  void on_message(const Welcome& welcome, Instant now);
  void on_message(const HelloRefused& refused, Instant now);
  void on_message(const Begin& begin, Instant now);
  void on_message(const SourceDigest& digest, Instant now);
  void on_message(const Decision& decision, Instant now);
  void on_message(const Release& release, Instant now);
  template <typename T>
  void on_message(const T& unexpected, Instant now);

  update::BeginOutcome try_begin(const Begin& begin, Instant now);
  Status check_begin(const Begin& begin) const;
  void remember(const BeginReply& reply);
  void await_boundary(Instant now);
  void vote(const Status& error, Instant now);
  void abort(const Status& why, bool keep_gate_shut, Instant now);
  void end_update(Instant now);
  void leave_stream(const Status& why);
  void send(Message message);
  void say_hello();
  void break_off(const Status& why, Instant now);
  RankReport make_report() const;
  Answers* find_answers(const UpdateId& id);

  RankMachineOptions options_;
  update::Transaction& transaction_;
  update::FenceState& fence_;
  std::deque<Action> actions_;
  std::deque<Answers> answers_;  // newest last, at most kAnswersMax
  Phase phase_ = Phase::kIdle;
  bool linked_ = false;    // a connection is up
  bool welcomed_ = false;  // and the hello was accepted
  std::optional<Incarnation> coordinator_;
  UpdateId id_;  // of the open update
  Instant deadline_ = Instant::never();
  bool stream_open_ = false;
  bool stream_started_ = false;
  std::optional<SourceDigest> digest_;  // may come before END is seen here
  Instant begun_at_;
  std::optional<Instant> first_frame_at_;
  std::optional<Instant> ended_at_;
  Instant voted_at_;
  Instant decided_at_;
  // Since when no step runs on account of this update: its fence rose, or, where it was up before,
  // the first frame came.
  std::optional<Instant> fenced_at_;
  PhaseSeconds seconds_;
  uint64_t payload_bytes_ = 0;
  std::string cache_result_;
  std::optional<RankReport> last_report_;
  uint64_t committed_ = 0;
  uint64_t aborted_ = 0;
};

}  // namespace changeover::protocol
