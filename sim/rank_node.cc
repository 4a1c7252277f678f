#include "sim/rank_node.h"

#include <algorithm>
#include <utility>

namespace changeover::sim {

using protocol::RankMachine;

namespace {

std::string outcome_text(RankOutcome outcome) {
  static constexpr const char* kTexts[] = {"committed", "already there", "restored",
                                           "fenced",    "in doubt",      "lost"};
  return kTexts[static_cast<size_t>(outcome)];
}

}  // namespace

Status RankNode::Raiser::raise_and_drain(update::FenceReason reason, VersionStamp about) {
  const bool was_up = fence_.up();
  if (fence_.raise(reason, about) != 0 && bug_ != Bug::kFenceDoesNotDrain) {
    if (!was_up) {
      fence_.lower();
    }
    return {Code::kDeadline, "a step is still inside"};
  }
  return {};
}

Status RankNode::Raiser::reclaim(uint32_t half) {
  if (fence_.retire(half) != 0 && bug_ != Bug::kOldHalfIsReusedAtOnce) {
    fence_.keep(half);
    return {Code::kDeadline, "a step still holds the old half"};
  }
  return {};
}

RankNode::Process::Process(World& world, const RankNode& node)
    : memory(world.model.plan(node.name_.rank)),
      second(world.model.plan(node.name_.rank)),
      raiser(fence, world.bug),
      journal(*update::journal_bytes(world.model.plan(node.name_.rank))) {
  for (const auto* half : {&memory, &second}) {  // nothing is right by being zero
    for (const LiveParameter& live : half->parameters()) {
      world.random.fill(
          {live.data, static_cast<size_t>(*byte_count(live.spec.dtype, live.spec.shape))});
    }
  }
  protocol::RankMachineOptions options;
  options.hello.job = "sim";
  options.hello.rank = node.name_;
  options.hello.engine_size = kEngineSize;
  options.hello.incarnation = world.incarnation();
  options.hello.mode = node.mode_;
  options.hello.payload_bytes_max = options.hello.metadata_bytes_max = 4096;
  options.engine_picks_boundary = true;
  update::TransactionOptions transaction_options;
  transaction_options.rank = node.name_;
  transaction_options.incarnation = options.hello.incarnation;
  transaction_options.mode = node.mode_;
  transaction_options.journal = journal;
  transaction_options.second = second.parameters();
  transaction =
      std::move(update::Transaction::make(world.model.plan(node.name_.rank), memory.parameters(),
                                          fence, raiser, transaction_options))
          .take();
  sink = std::make_unique<protocol::TransactionSink>(*transaction);
  machine = std::make_unique<RankMachine>(std::move(options), *transaction, fence);
}

void RankNode::start() {
  if (alive()) {
    return;
  }
  world_.note(name_.to_text() + " starts");
  process_ = std::make_unique<Process>(world_, *this);
  world_.scheduler.after(world_.delay(milliseconds(1), milliseconds(50)),
                         guarded([this] { connect(); }));
}

void RankNode::crash() {
  if (!alive()) {
    return;
  }
  world_.note(name_.to_text() + " crashes: " + describe());
  ++life_;
  stopped_ = false;
  backlog_.clear();
  if (const LinkPtr link = process_->link) {
    link->detach(End::kRank);
    link->cut({Code::kUnavailable, "the rank's process died"});
  }
  process_.reset();
}

void RankNode::stop() {
  if (alive() && !stopped_) {
    world_.note(name_.to_text() + " is stopped");
    stopped_ = true;
  }
}

void RankNode::resume() {
  if (!stopped_) {
    return;
  }
  world_.note(name_.to_text() + " goes on");
  stopped_ = false;
  for (auto& what : std::exchange(backlog_, {})) {
    what();
  }
}

void RankNode::cut_link(const Status& why) {
  if (alive() && process_->link) {
    world_.note(name_.to_text() + " loses its connection");
    process_->link->cut(why);
  }
}

void RankNode::cut_data(const Status& why) {
  if (!alive() || stopped_ || !process_->receiver) {
    return;
  }
  world_.note(name_.to_text() + " loses its data road");
  process_->receiver->on_road_failure(why);
  end_stream_if_done();
  pump();
}

std::optional<update::FenceState::Pin> RankNode::enter_step(std::optional<VersionStamp> named) {
  if (!alive() || stopped_) {
    return std::nullopt;
  }
  const auto pin = named ? process_->fence.try_enter(*named) : process_->fence.try_enter();
  if (pin) {
    world_.checker.on_enter(name_, life_, pin->version.version);
  }
  return pin;
}

void RankNode::leave_step(uint64_t life, uint32_t half) {
  if (alive() && life == life_) {
    (void)process_->fence.leave(half);
    guarded([this] { on_data(); })();
  }
}

// Between two steps a staged version changes over.
void RankNode::cross_boundary() {
  const auto id = process_->machine->staged_update();
  if (id && (process_->fence.readers() == 0 || world_.bug == Bug::kFenceDoesNotDrain)) {
    handle(RankMachine::AtBoundary{*id});
  }
}

std::string RankNode::describe() const {
  if (!alive()) {
    return "dead";
  }
  const auto held = process_->transaction->version();
  return (held ? "v" + std::to_string(held->version) : std::string("no version")) + ", " +
         std::string(process_->machine->phase_text()) + (process_->fence.up() ? ", fence up" : "") +
         (process_->fence.gate_open() ? "" : ", gate shut");
}

std::function<void()> RankNode::guarded(std::function<void()> what) {
  return [this, life = life_, what = std::move(what)] {
    if (life != life_ || !alive()) {
      return;
    }
    if (stopped_) {
      backlog_.push_back(guarded(what));
      return;
    }
    what();
    pump();
  };
}

void RankNode::connect() {
  if (process_->link) {
    return;
  }
  LinkPtr link = dial_();
  if (!link) {
    world_.scheduler.after(world_.delay(milliseconds(20), milliseconds(400)),
                           guarded([this] { connect(); }));
    return;
  }
  process_->link = link;
  Link::Callbacks callbacks;
  // Each callback is of this link and this process; a later link replaces them. They name the link
  // and do not hold it: it holds them.
  callbacks.on_message = [this, id = link->id()](protocol::Message message) {
    guarded([this, id, message = std::move(message)] {
      if (is_link(id)) {
        on_message(message);
      }
    })();
  };
  callbacks.on_data = [this, id = link->id()](uint64_t stream, std::vector<std::byte> bytes) {
    guarded([this, id, stream, bytes = std::move(bytes)] {
      if (is_link(id)) {
        process_->data.push_back({stream, bytes});
        on_data();
      }
    })();
  };
  callbacks.on_closed = [this, id = link->id()](Status why) {
    guarded([this, id, why] {
      if (!is_link(id)) {
        return;
      }
      process_->link->detach(End::kRank);
      process_->link = nullptr;
      handle(RankMachine::Disconnected{why});
      world_.scheduler.after(world_.delay(milliseconds(20), milliseconds(400)),
                             guarded([this] { connect(); }));
    })();
  };
  link->attach(End::kRank, std::move(callbacks));
  handle(RankMachine::Connected{});
}

void RankNode::on_message(protocol::Message message) {
  if (world_.bug == Bug::kDigestIgnored) {
    if (auto* begin = std::get_if<protocol::Begin>(&message)) {
      begin->digests_on = false;
    } else if (auto* digest = std::get_if<protocol::SourceDigest>(&message)) {
      told_ = std::exchange(digest->digest, std::nullopt);
    }
  }
  handle(RankMachine::Received{std::move(message)});
  if (world_.bug == Bug::kRankGuessesCommit && process_->machine->connected() &&
      process_->machine->phase() == RankMachine::Phase::kInDoubt) {
    handle(RankMachine::Received{protocol::Decision{process_->machine->update(), true, {}}});
  }
}

void RankNode::on_data() {
  // Where bytes go into live memory, the road holds them back while a step is inside: the
  // transaction's raise must not fail.
  const bool any_time =
      mode_ == Mode::kStaged || mode_ == Mode::kSwap || world_.bug == Bug::kFenceDoesNotDrain;
  while (!process_->data.empty() && (any_time || process_->fence.readers() == 0)) {
    const Data data = std::move(process_->data.front());
    process_->data.pop_front();
    feed(data);
  }
}

void RankNode::feed(const Data& data) {
  Process& p = *process_;
  if (!p.receiver || data.stream != p.stream) {
    return;
  }
  handle(RankMachine::StreamStarted{});
  if (data.bytes.empty()) {
    p.receiver->on_road_failure({Code::kUnavailable, "the publisher dropped this rank"});
  }
  size_t at = 0;
  while (at < data.bytes.size()) {
    const auto want = p.receiver->want();
    if (!want) {
      break;
    }
    const size_t bytes = std::min<size_t>(want->bytes, data.bytes.size() - at);
    p.receiver->on_bytes(std::span(data.bytes).subspan(at, bytes));
    at += bytes;
  }
  if (world_.bug == Bug::kJournalLosesAByte && p.transaction->wrote()) {
    p.journal[0] ^= std::byte{1};
  }
  p.stall_deadline = world_.scheduler.now() + Deadlines().stall;
  end_stream_if_done();
}

void RankNode::end_stream_if_done() {
  Process& p = *process_;
  if (p.receiver && p.receiver->done()) {
    const RankMachine::StreamEnded ended{p.receiver->result(), p.receiver->out_of_step(),
                                         p.receiver->payload_bytes()};
    p.receiver.reset();
    p.stall_deadline = Instant::never();
    handle(ended);
  }
}

void RankNode::handle(const RankMachine::Event& event) {
  process_->machine->handle(event, world_.scheduler.now());
  pump();
}

void RankNode::pump() {
  while (alive()) {
    auto action = process_->machine->poll();
    if (!action) {
      break;
    }
    act(*action);
  }
  if (alive()) {
    cross_boundary();
  }
  arm();
}

void RankNode::act(const RankMachine::Action& action) {
  Process& p = *process_;
  if (const auto* send_action = std::get_if<RankMachine::Send>(&action)) {
    send(send_action->message);
  } else if (const auto* open = std::get_if<RankMachine::OpenStream>(&action)) {
    protocol::StreamReceiverOptions options;
    options.version = open->version.version;
    options.payload_bytes_max = options.metadata_bytes_max = 4096;
    p.receiver.emplace(options, *p.sink);
    p.stream = open->stream_id;
    p.stall_deadline = Instant::never();
    p.data.clear();
  } else if (std::get_if<RankMachine::CloseStream>(&action)) {
    p.receiver.reset();
    p.stall_deadline = Instant::never();
  } else if (const auto* close = std::get_if<RankMachine::CloseConnection>(&action)) {
    if (const LinkPtr link = std::exchange(p.link, nullptr)) {
      link->close(End::kRank, close->why);
      world_.scheduler.after(world_.delay(milliseconds(50), milliseconds(400)),
                             guarded([this] { connect(); }));
    }
  } else if (const auto* check = std::get_if<RankMachine::Check>(&action)) {
    const RankMachine::Checked checked{p.transaction->check(check->source)};
    p.machine->handle(checked, world_.scheduler.now());
  } else if (const auto* prepare = std::get_if<RankMachine::Prepare>(&action)) {
    const RankMachine::Prepared prepared{p.transaction->prepare(prepare->source)};
    p.machine->handle(prepared, world_.scheduler.now());
  } else if (std::get_if<RankMachine::ChangeOver>(&action)) {
    p.transaction->finish();
    if (world_.bug == Bug::kNewHalfCanBeNamedAtOnce && mode_ == Mode::kSwap) {
      p.fence.keep(p.fence.half());
    }
    p.machine->handle(RankMachine::ChangedOver{}, world_.scheduler.now());
  } else if (const auto* ended = std::get_if<RankMachine::UpdateEnded>(&action)) {
    ++world_.outcomes[static_cast<size_t>(ended->report.outcome)];
    world_.note(name_.to_text() + " ends: " + outcome_text(ended->report.outcome) + ", " +
                describe() +
                (ended->report.error.ok() ? "" : ": " + ended->report.error.to_string()));
    if (world_.bug == Bug::kGateOpensAtFinish && ended->report.outcome == RankOutcome::kCommitted) {
      p.fence.open_gate();
    }
  }
}

void RankNode::send(protocol::Message message) {
  if (auto* vote = std::get_if<protocol::Vote>(&message)) {
    if (world_.bug == Bug::kDigestIgnored && vote->ready) {
      vote->digest = told_;
    }
    world_.checker.on_vote(name_, *vote);
    if (world_.bug == Bug::kSecondVote && !vote->ready) {
      protocol::Vote other = *vote;
      other.ready = true;
      world_.checker.on_vote(name_, other);
    }
  } else if (const auto* finished = std::get_if<protocol::Finished>(&message)) {
    if (finished->report.outcome == RankOutcome::kCommitted) {
      world_.checker.on_commit(name_, finished->id, finished->report.version->version);
    }
  }
  if (process_->link) {
    process_->link->send(End::kRank, std::move(message));
  }
}

// Sees to it that the machine, or the stalled stream, hears of its deadline.
void RankNode::arm() {
  if (!alive() || world_.bug == Bug::kNoDeadlines) {
    return;
  }
  Process& p = *process_;
  const Instant next = std::min(p.machine->deadline(), p.stall_deadline);
  if (next == Instant::never() || next == p.armed) {
    return;
  }
  p.armed = next;
  world_.scheduler.at(next, guarded([this, next] {
                        Process& process = *process_;
                        process.armed = Instant::never();
                        if (process.receiver && process.stall_deadline <= world_.scheduler.now()) {
                          process.receiver->on_road_failure({Code::kDeadline, "no byte for 10 s"});
                          end_stream_if_done();
                        }
                        handle(RankMachine::Tick{});
                      }));
}

}  // namespace changeover::sim
