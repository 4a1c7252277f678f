#include "protocol/rank_machine.h"

#include <algorithm>
#include <utility>

namespace changeover::protocol {

namespace {

double seconds_between(Instant from, Instant to) {
  return static_cast<double>((to - from).count()) * 1e-9;
}

std::string milliseconds_text(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) +
         " ms";
}

BeginKind message_kind(update::BeginKind kind) {
  switch (kind) {
    case update::BeginKind::kReady:
      return BeginKind::kReady;
    case update::BeginKind::kAlreadyThere:
      return BeginKind::kAlreadyThere;
    case update::BeginKind::kNeedDigest:
      return BeginKind::kNeedDigest;
    case update::BeginKind::kRefused:
      break;
  }
  return BeginKind::kRefused;
}

}  // namespace

RankMachine::RankMachine(RankMachineOptions options, update::Transaction& transaction,
                         update::FenceState& fence)
    : options_(std::move(options)), transaction_(transaction), fence_(fence) {}

void RankMachine::handle(const Event& event, Instant now) {
  std::visit([&](const auto& e) { on(e, now); }, event);
}

std::optional<RankMachine::Action> RankMachine::poll() {
  if (actions_.empty()) {
    return std::nullopt;
  }
  Action action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

Instant RankMachine::deadline() const {
  return deadline_;
}

// --- the connection

void RankMachine::on(const Connected&, Instant) {
  linked_ = true;
  welcomed_ = false;
  say_hello();
}

// The publisher decides on what a hello said when it releases steps: it has to be true.
void RankMachine::on(const Reloaded&, Instant) {
  if (welcomed_) {
    say_hello();
  }
}

void RankMachine::say_hello() {
  Hello hello = options_.hello;
  hello.version = transaction_.version();
  hello.digest = transaction_.digest();
  hello.fenced = fence_.up();
  hello.gate_open = fence_.gate_open();
  hello.prepared = transaction_.prepared() ? std::optional<UpdateId>(id_) : std::nullopt;
  send(std::move(hello));
}

void RankMachine::on(const Disconnected& event, Instant now) {
  linked_ = false;
  welcomed_ = false;
  std::erase_if(actions_,
                [](const Action& action) { return std::holds_alternative<Send>(action); });
  if (phase_ == Phase::kReceiving || phase_ == Phase::kEnded || phase_ == Phase::kStaged) {
    // No yes was given, so nobody can have finished: the update is over here.
    const Status why = event.why.with_context("the publisher is gone in mid-update");
    leave_stream(why);
    vote(why.ok() ? Status(Code::kUnavailable, "the publisher is gone in mid-update") : why, now);
  } else if (phase_ == Phase::kPrepared) {
    phase_ = Phase::kInDoubt;
    last_report_ = make_report();
    actions_.push_back(UpdateEnded{*last_report_});
  }
  deadline_ = Instant::never();
}

void RankMachine::on(const Received& event, Instant now) {
  if (!linked_) {
    return;
  }
  const bool greeting = std::holds_alternative<Welcome>(event.message) ||
                        std::holds_alternative<HelloRefused>(event.message);
  if (greeting == welcomed_) {
    break_off({Code::kCorrupt,
               "the publisher spoke out of turn: nothing goes before its welcome, "
               "and it comes once"},
              now);
    return;
  }
  std::visit([&](const auto& message) { on_message(message, now); }, event.message);
}

void RankMachine::on_message(const Welcome& welcome, Instant now) {
  welcomed_ = true;
  coordinator_ = welcome.coordinator;
  // The hello said what is in doubt; one that made the update answers, another one cannot.
  const bool may_answer = phase_ == Phase::kInDoubt && welcome.coordinator == id_.coordinator;
  deadline_ = may_answer ? now + options_.deadlines.vote : Instant::never();
}

void RankMachine::on_message(const HelloRefused& refused, Instant) {
  linked_ = false;
  actions_.push_back(CloseConnection{refused.why, refused.retry});
}

template <typename T>
void RankMachine::on_message(const T&, Instant now) {
  break_off({Code::kCorrupt, "the publisher sent a message that only ranks send"}, now);
}

void RankMachine::break_off(const Status& why, Instant now) {
  on(Disconnected{why}, now);
  actions_.push_back(CloseConnection{why, true});
}

// --- begin and the stream

void RankMachine::on_message(const Begin& begin, Instant now) {
  if (Answers* said = find_answers(begin.id)) {
    send(*said->begin);  // A repeated message gets the first answer.
    return;
  }
  const update::BeginOutcome outcome = try_begin(begin, now);
  const BeginReply reply{begin.id, options_.hello.incarnation, message_kind(outcome.kind),
                         outcome.why};
  remember(reply);
  if (outcome.kind == update::BeginKind::kReady) {
    id_ = begin.id;
    phase_ = Phase::kReceiving;
    stream_open_ = true;
    stream_started_ = false;
    digest_.reset();
    begun_at_ = voted_at_ = now;
    first_frame_at_.reset();
    ended_at_.reset();
    seconds_ = {};
    fenced_at_.reset();
    payload_bytes_ = 0;
    cache_result_.clear();
    // The publisher waits for the slowest rank's reply before it sends.
    deadline_ = now + options_.deadlines.begin + options_.deadlines.stall;
    actions_.push_back(
        OpenStream{begin.id, begin.stream_id, begin.version, begin.payload_bytes_total});
  }
  send(reply);
}

void RankMachine::remember(const BeginReply& reply) {
  if (answers_.size() >= kAnswersMax) {
    // What was said about an update in doubt is still needed.
    const bool keep_first = phase_ != Phase::kIdle && answers_.front().id == id_;
    answers_.erase(answers_.begin() + (keep_first ? 1 : 0));
  }
  answers_.push_back({reply.id, reply, std::nullopt, std::nullopt});
}

update::BeginOutcome RankMachine::try_begin(const Begin& begin, Instant now) {
  if (Status status = check_begin(begin); !status.ok()) {
    return {update::BeginKind::kRefused, status};
  }
  if (Status status = options_.may_begin ? options_.may_begin() : Status(); !status.ok()) {
    return {update::BeginKind::kRefused, status};
  }
  if (transaction_.prepared() && begin.id.coordinator != id_.coordinator &&
      begin.version >= transaction_.target()) {
    // Rule V5: whoever could have told us the decision is gone. What was only prepared is undone;
    // peers may have finished it, so no step runs here before all hold one version again.
    abort({Code::kAborted,
           "prepared, and the publisher died before its decision came: ended by "
           "the next one's begin"},
          true, now);
  }
  return transaction_.begin(begin.version, begin.digest, begin.digests_on);
}

Status RankMachine::check_begin(const Begin& begin) const {
  if (begin.id.coordinator != coordinator_) {
    return {Code::kRefused, "update " + begin.id.to_text() + " is not of the publisher that " +
                                "welcomed this rank"};
  }
  if (begin.payload_bytes_max > options_.hello.payload_bytes_max) {
    return {Code::kExhausted, "a frame of " + std::to_string(begin.payload_bytes_max) +
                                  " bytes is announced, this rank takes " +
                                  std::to_string(options_.hello.payload_bytes_max) +
                                  ": publish in smaller buckets"};
  }
  if (begin.metadata_bytes_max > options_.hello.metadata_bytes_max) {
    return {Code::kExhausted, "metadata of " + std::to_string(begin.metadata_bytes_max) +
                                  " bytes is announced, this rank takes " +
                                  std::to_string(options_.hello.metadata_bytes_max) +
                                  ": publish in smaller buckets"};
  }
  return {};
}

void RankMachine::on(const StreamStarted&, Instant now) {
  if (phase_ == Phase::kReceiving && !stream_started_) {
    stream_started_ = true;
    first_frame_at_ = now;
    seconds_.begin = seconds_between(begun_at_, now);
    if (fence_.up()) {
      fenced_at_ = now;
    }
    deadline_ = Instant::never();  // From here the road's stall limit holds.
  }
}

void RankMachine::on(const StreamEnded& event, Instant now) {
  if (phase_ != Phase::kReceiving || !stream_open_) {
    return;
  }
  stream_open_ = false;
  payload_bytes_ = event.payload_bytes;
  ended_at_ = now;
  seconds_.receive = first_frame_at_ ? seconds_between(*first_frame_at_, now) : 0;
  if (!event.status.ok()) {
    vote(event.status, now);
    return;
  }
  phase_ = Phase::kEnded;
  deadline_ = now + options_.deadlines.vote;
  if (digest_) {
    actions_.push_back(Check{digest_->digest});
  }
}

void RankMachine::leave_stream(const Status& why) {
  if (stream_open_) {
    stream_open_ = false;
    actions_.push_back(CloseStream{why});
  }
}

// --- prepare, vote, decision

void RankMachine::on_message(const SourceDigest& digest, Instant now) {
  if (digest.id != id_) {
    return;
  }
  if (phase_ == Phase::kPrepared) {
    deadline_ = now + options_.deadlines.vote;  // The decision takes as long as the source's check.
  } else if (phase_ == Phase::kStaged && digest_->checking) {
    digest_->checking = digest.checking;
    await_boundary(now);
  } else if (phase_ == Phase::kReceiving || phase_ == Phase::kEnded) {
    digest_ = digest;
    if (phase_ == Phase::kEnded) {
      actions_.push_back(Check{digest_->digest});
    }
  }
}

// What can be done while the engine serves was done.
void RankMachine::on(const Checked& event, Instant now) {
  if (phase_ != Phase::kEnded) {
    return;
  }
  if (!event.status.ok()) {
    return vote(event.status, now);
  }
  await_boundary(now);
}

// No engine that can serve on stops for a source that may yet be found changed; then it says when.
void RankMachine::await_boundary(Instant now) {
  if (digest_->checking && receives_apart(options_.hello.mode) && fence_.open()) {
    phase_ = Phase::kStaged;
    deadline_ = now + options_.deadlines.vote;
  } else if (options_.engine_picks_boundary && transaction_.serves_on()) {
    phase_ = Phase::kStaged;
    // The publisher waits longer: it shall hear why.
    deadline_ = now + options_.deadlines.vote / 2;
  } else {
    actions_.push_back(Prepare{digest_->digest});
  }
}

void RankMachine::on(const AtBoundary& event, Instant) {
  if (staged_update() == event.id) {
    actions_.push_back(Prepare{digest_->digest});
  }
}

void RankMachine::on(const Prepared& event, Instant now) {
  if (phase_ == Phase::kEnded || phase_ == Phase::kStaged) {
    vote(event.status, now);
  }
}

void RankMachine::on(const FenceRose& event, Instant) {
  if (phase_ != Phase::kIdle && !fenced_at_) {
    fenced_at_ = event.at;
  }
}

// The one place that votes, so that each update has exactly one (rule V2).
void RankMachine::vote(const Status& error, Instant now) {
  Answers* said = find_answers(id_);
  if (said == nullptr || said->vote) {
    return;
  }
  said->vote = Vote{id_,
                    error.ok(),
                    true,
                    transaction_.wrote(),
                    transaction_.target(),
                    transaction_.received_digest(),
                    options_.hello.mode,
                    options_.hello.incarnation,
                    error};
  voted_at_ = now;
  if (ended_at_) {
    seconds_.prepare = seconds_between(*ended_at_, now);
  } else if (first_frame_at_) {
    seconds_.receive = seconds_between(*first_frame_at_, now);  // It was left in the middle.
  }
  send(*said->vote);
  if (error.ok()) {
    phase_ = Phase::kPrepared;
    deadline_ = now + options_.deadlines.vote;
  } else {
    abort(error, false, now);
  }
}

void RankMachine::on_message(const Decision& decision, Instant now) {
  Answers* said = find_answers(decision.id);
  if (said != nullptr && said->finished) {
    send(*said->finished);
    return;
  }
  if (phase_ == Phase::kIdle || decision.id != id_) {
    return;  // Of an update that this process never took part in.
  }
  if (phase_ == Phase::kPrepared || phase_ == Phase::kInDoubt) {
    seconds_.vote = seconds_between(voted_at_, now);
    if (!decision.commit) {
      return abort(decision.reason, false, now);
    }
    phase_ = Phase::kFinishing;
    decided_at_ = now;
    deadline_ = Instant::never();
    actions_.push_back(ChangeOver{});
  } else if (phase_ == Phase::kFinishing) {
    return;  // Finished is about to be said.
  } else if (decision.commit) {
    break_off({Code::kCorrupt, "the publisher decided to commit without this rank's vote"}, now);
  } else {
    const Status why = decision.reason.ok()
                           ? Status(Code::kAborted, "the publisher gave the update up")
                           : decision.reason;
    leave_stream(why);
    vote(why, now);
  }
}

void RankMachine::on(const ChangedOver& event, Instant now) {
  if (phase_ != Phase::kFinishing) {
    return;
  }
  ++committed_;
  cache_result_ = event.cache_result;
  seconds_.finish = seconds_between(decided_at_, now);
  end_update(now);
}

void RankMachine::abort(const Status& why, bool keep_gate_shut, Instant now) {
  transaction_.abort(why.ok() ? Status(Code::kAborted, "the publisher decided to abort") : why,
                     keep_gate_shut);
  ++aborted_;
  end_update(now);
}

void RankMachine::end_update(Instant now) {
  if (fenced_at_) {
    seconds_.pause = seconds_between(*fenced_at_, now);
  }
  phase_ = Phase::kIdle;
  deadline_ = Instant::never();
  last_report_ = make_report();
  if (Answers* said = find_answers(id_)) {
    said->finished = Finished{id_, options_.hello.incarnation, *last_report_};
    send(*said->finished);
  }
  actions_.push_back(UpdateEnded{*last_report_});
}

void RankMachine::on_message(const Release& release, Instant now) {
  // The gate belongs to the version that is held: a later one shuts it again when it finishes.
  if (transaction_.version() != release.version || fence_.gate_open()) {
    return;
  }
  fence_.open_gate();
  if (last_report_ && phase_ == Phase::kIdle && last_report_->version == release.version &&
      fenced_at_) {
    last_report_->seconds.pause = seconds_between(*fenced_at_, now);
  }
}

// --- time

void RankMachine::on(const Tick&, Instant now) {
  if (now < deadline_) {
    return;
  }
  deadline_ = Instant::never();
  const std::string version = std::to_string(transaction_.target().version);
  if (phase_ == Phase::kReceiving) {
    const Status why(Code::kDeadline, "waited " + milliseconds_text(now - begun_at_) +
                                          " for the publisher's stream of version " + version +
                                          "; nothing arrived");
    leave_stream(why);
    vote(why, now);
  } else if (phase_ == Phase::kEnded) {
    vote({Code::kDeadline, "waited " + milliseconds_text(now - *ended_at_) +
                               " for the publisher's " + "digest of version " + version +
                               "; the stream had arrived whole"},
         now);
  } else if (phase_ == Phase::kStaged) {
    const std::string what = digest_->checking ? " for the publisher's check of its source"
                                               : " for a step boundary of the engine";
    vote({Code::kDeadline, "waited " + milliseconds_text(now - *ended_at_) + what + "; version " +
                               version + " was staged whole"},
         now);
  } else if (phase_ == Phase::kPrepared || phase_ == Phase::kInDoubt) {
    if (phase_ == Phase::kPrepared) {
      phase_ = Phase::kInDoubt;
      last_report_ = make_report();
      actions_.push_back(UpdateEnded{*last_report_});
    }
    if (welcomed_) {
      send(*find_answers(id_)->vote);  // Asks again: a decided update's vote gets its decision.
      deadline_ = now + options_.deadlines.vote;
    }
  }
}

void RankMachine::on(const Stop&, Instant now) {
  const Status why(Code::kAborted, "this rank stops");
  on(Disconnected{why}, now);
  actions_.push_back(CloseConnection{why, false});
}

// --- words

void RankMachine::send(Message message) {
  if (linked_) {
    actions_.push_back(Send{std::move(message)});
  }
}

RankMachine::Answers* RankMachine::find_answers(const UpdateId& id) {
  const auto found = std::find_if(answers_.begin(), answers_.end(),
                                  [&](const Answers& answers) { return answers.id == id; });
  return found == answers_.end() ? nullptr : &*found;
}

}  // namespace changeover::protocol
