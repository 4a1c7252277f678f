#include "runtime/rank_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <unistd.h>

#include "control/codec.h"
#include "os/entropy.h"
#include "os/limits.h"
#include "os/wait.h"
#include "runtime/callback.h"
#include "runtime/commit_hook.h"
#include "runtime/fence_status.h"
#include "runtime/rank_log.h"
#include "runtime/roads.h"
#include "runtime/stream_part.h"

namespace changeover::runtime {
namespace {

void entropy(std::span<uint8_t> bytes) {
  (void)os::fill_random(std::as_writable_bytes(bytes));
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

uint64_t payload_ceiling(const SubscriberOptions& options) {
  if (options.payload_bytes_max > 0) {
    return options.payload_bytes_max;
  }
  const auto room = os::read_memory_room();
  return room.ok() ? room->room_bytes() : uint64_t{1} << 40;
}

protocol::RankMachineOptions machine_options(const RankDriver::Parts& parts,
                                             const Incarnation& incarnation,
                                             uint64_t payload_bytes_max) {
  const SubscriberOptions& options = parts.options;
  protocol::RankMachineOptions out;
  out.hello.job = options.job;
  out.hello.rank = {options.engine, options.rank};
  out.hello.engine_size = options.engine_size;
  out.hello.incarnation = incarnation;
  out.hello.mode = options.mode;
  out.hello.plan_digest = load_plan_digest(parts.plan);
  out.hello.plan_generation = parts.plan.generation;
  out.hello.capabilities = {"stream", std::string(mode_name(options.mode))};
  out.hello.payload_bytes_max = payload_bytes_max;
  out.hello.metadata_bytes_max = options.metadata_bytes_max;
  out.hello.host = host_name();
  out.hello.pid = getpid();
  out.deadlines = options.deadlines;
  out.may_begin = parts.may_begin;
  out.cache_policy = options.cache_policy;
  out.engine_picks_boundary = options.engine_picks_boundary;
  out.road = road_name(options.endpoint.kind);
  out.road_reason = road_reason(options.endpoint.kind);
  return out;
}

control::DialerOptions dialer_options(const SubscriberOptions& options,
                                      const Incarnation& incarnation) {
  control::DialerOptions out;
  out.endpoint = options.endpoint;
  out.channel.job = options.job;
  out.channel.token = options.token;
  out.channel.handshake = options.deadlines.connect;
  out.channel.set_silence(options.deadlines.stall);
  out.connect = options.deadlines.connect;
  for (int i = 0; i < 8; ++i) {
    out.seed = out.seed << 8 | incarnation.bytes[i];
  }
  return out;
}

}  // namespace

RankDriver::RankDriver(const Parts& parts, const Incarnation& incarnation)
    : parts_(parts),
      incarnation_(incarnation),
      payload_bytes_max_(payload_ceiling(parts.options)),
      machine_(machine_options(parts, incarnation, payload_bytes_max_), parts.transaction,
               parts.fence.state()),
      inbox_([&fence = parts.fence] { fence.wake_writer(); }),
      dialer_(dialer_options(parts.options, incarnation), loop_, inbox_, entropy),
      sink_(parts.transaction) {
  publish_status();
}

RankDriver::~RankDriver() {
  interrupt();
  loop_.stop();
}

void RankDriver::connect() {
  dialer_.dial();
  loop_.start();
}

void RankDriver::reconnect() {
  if (!std::exchange(dialing_, true)) {
    dialer_.dial();
  }
}

void RankDriver::wait(Instant until) {
  if (receiver_ || ended_ || !refused_.ok()) {
    return;
  }
  const Instant own = std::min(machine_.deadline(), reconnect_at_);
  inbox_.wait(parts_.clock, idle() ? std::min(until, own) : own);
}

Result<std::optional<RankReport>> RankDriver::turn() {
  if (plan_is_new_.exchange(false)) {  // Before anything that came for a rank of the old one.
    say_hello_again();
  }
  while (auto event = inbox_.take()) {
    handle(*std::move(event));
  }
  cross_boundary();
  if (parts_.clock.now() >= machine_.deadline()) {
    feed(protocol::RankMachine::Tick{});
  }
  if (parts_.clock.now() >= reconnect_at_) {
    reconnect_at_ = Instant::never();
    reconnect();
  }
  publish_status();
  if (receiver_) {
    pump();  // May be at it for long.
    publish_status();
  }
  if (auto ended = std::exchange(ended_, std::nullopt)) {
    return ended;
  }
  if (Status refused = std::exchange(refused_, {}); !refused.ok()) {
    return refused;
  }
  return std::optional<RankReport>();
}

void RankDriver::handle(ChannelEvent event) {
  using Kind = ChannelEvent::Kind;
  if (event.kind == Kind::kRefused) {
    log(event.why.to_string());
    last_error_ = event.why;
    if (event.why.code() == Code::kRefused) {
      refused_ = event.why;
    }
    return;
  }
  if (event.kind == Kind::kOpen) {
    peer_ = event.peer;
    return;
  }
  if (event.peer != peer_) {
    return;
  }
  if (event.kind == Kind::kData) {
    drop_road();
    data_ = std::move(event.fd);
    feed(protocol::RankMachine::Connected{});
  } else if (event.kind == Kind::kClosed) {
    log("connection to the publisher lost: " + event.why.to_string());
    last_error_ = event.why;
    peer_ = 0;
    feed(protocol::RankMachine::Disconnected{event.why});
    drop_road();
  } else if (auto message = control::decode(event.body); message.ok()) {
    if (std::holds_alternative<protocol::Welcome>(*message)) {
      dialer_.settled();
    }
    feed(protocol::RankMachine::Received{*std::move(message)});
  } else {
    redial(message.status());
  }
}

Status RankDriver::given_up() const {
  if (inbox_.stopped()) {
    return {Code::kAborted, "this rank stops"};
  }
  Status why;
  inbox_.look([&](const ChannelEvent& event) {
    if (idle() || event.peer != peer_ || !why.ok()) {
      return;
    }
    if (event.kind == ChannelEvent::Kind::kClosed) {
      why = Status(Code::kUnavailable, "the publisher is gone: " + event.why.to_string());
    } else if (event.kind == ChannelEvent::Kind::kFrame) {
      const auto message = control::decode(event.body);
      const auto* decision = message.ok() ? std::get_if<protocol::Decision>(&*message) : nullptr;
      if (decision != nullptr && decision->id == machine_.update() && !decision->commit) {
        why = decision->reason.ok() ? Status(Code::kAborted, "the publisher gave the update up")
                                    : decision->reason;
      }
    }
  });
  return why;
}

void RankDriver::feed(const protocol::RankMachine::Event& event) {
  machine_.handle(event, parts_.clock.now());
  while (auto action = machine_.poll()) {
    act(*std::move(action));
  }
  parts_.fence.wake_readers();
}

void RankDriver::act(protocol::RankMachine::Action action) {
  using Machine = protocol::RankMachine;
  if (auto* send = std::get_if<Machine::Send>(&action)) {
    dialer_.send(peer_, control::encode(send->message));
  } else if (auto* open = std::get_if<Machine::OpenStream>(&action)) {
    open_stream(*open);
  } else if (auto* close = std::get_if<Machine::CloseStream>(&action)) {
    if (receiver_ && started_) {
      // The bytes still come, and who does not take them holds its peers back (rule R1).
      drained_ = true;
      receiver_->fail(close->why);
    } else {
      // No byte of it is here: the publisher sends none to a rank of an engine that has been
      // decided on, or drops it from the road. What comes all the same, the road skips.
      receiver_.reset();
      streaming_ = false;
    }
  } else if (auto* end = std::get_if<Machine::CloseConnection>(&action)) {
    log("connection to the publisher closed: " + end->why.to_string());
    last_error_ = end->why;
    const control::PeerId peer = std::exchange(peer_, 0);
    drop_road();
    dialer_.close(peer, end->retry);
    if (!end->retry) {
      refused_ = end->why;
      dialing_ = false;
    }
  } else if (const auto* check = std::get_if<Machine::Check>(&action)) {
    const Status status = parts_.transaction.check(check->source);
    machine_.handle(Machine::Checked{status}, parts_.clock.now());
  } else if (const auto* prepare = std::get_if<Machine::Prepare>(&action)) {
    const Status status = parts_.transaction.prepare(prepare->source);
    note_fence();
    machine_.handle(Machine::Prepared{status}, parts_.clock.now());
  } else if (std::get_if<Machine::ChangeOver>(&action)) {
    parts_.transaction.finish();
    machine_.handle(Machine::ChangedOver{run_commit_hook(parts_.options)}, parts_.clock.now());
  } else if (auto* ended = std::get_if<Machine::UpdateEnded>(&action)) {
    ended_ = ended->report;
    if (!ended->report.error.ok()) {
      const bool open = ended->report.outcome == RankOutcome::kInDoubt;
      log((open ? "update in doubt: " : "update failed: ") + ended->report.error.to_string());
      last_error_ = ended->report.error;
    }
  }
}

void RankDriver::open_stream(const protocol::RankMachine::OpenStream& open) {
  fence_noted_ = parts_.fence.up();
  parts_.fence.forget_raised();
  started_ = false;
  drained_ = false;
  quiet_since_ = parts_.clock.now();
  protocol::StreamReceiverOptions options;
  options.version = open.version.version;
  options.payload_bytes_max = payload_bytes_max_;
  options.metadata_bytes_max = parts_.options.metadata_bytes_max;
  receiver_.emplace(options, sink_);
  streaming_ = true;
  Status status;
  if (!road_) {
    auto road =
        open_receive_road(parts_.options.endpoint.kind, std::move(data_), "the publisher",
                          parts_.clock, parts_.clock.now() + parts_.options.deadlines.begin);
    if (road.ok()) {
      road_ = std::move(road).take();
      inbox_.set_road(road_.get());
    } else {
      status = road.status();
    }
  }
  if (status.ok()) {
    status = road_->open_stream(open.stream_id);
  }
  if (!status.ok()) {
    receiver_->on_road_failure(status);
  }
}

// Until the stream is over or something else wants to be looked at.
void RankDriver::pump() {
  while (const auto want = receiver_->want()) {
    const Instant stalled = quiet_since_ + parts_.options.deadlines.stall;
    const Instant deadline = started_ ? stalled : machine_.deadline();
    auto run = road_->receive(part_of(want->part), want->bytes, {}, deadline);
    if (run.ok()) {
      if (!started_) {
        started_ = true;
        feed(protocol::RankMachine::StreamStarted{});
        if (!receiver_) {
          return;
        }
      }
      receiver_->on_bytes({run->data, run->bytes});
      note_fence();
      if (Status status = road_->release(*run); !status.ok()) {
        receiver_->on_road_failure(status);
      }
      if (want->part == protocol::StreamPart::kPayload) {
        show_progress();
      }
      quiet_since_ = parts_.clock.now();  // After the work: a slow rank is not a quiet road.
    } else if (run.status().code() == Code::kTryLater) {
      return;
    } else {
      receiver_->on_road_failure(
          run.status().with_context("stream broke off at " + receiver_->position()));
    }
  }
  end_stream();
}

void RankDriver::end_stream() {
  const protocol::RankMachine::StreamEnded event{receiver_->result(), receiver_->out_of_step(),
                                                 receiver_->payload_bytes()};
  receiver_.reset();
  streaming_ = false;
  if (!drained_) {
    feed(event);
  }
  if (event.out_of_step && peer_ != 0) {
    redial(event.status);  // The data connection is of no use any more.
  }
}

void RankDriver::drop_road() {
  inbox_.set_road(nullptr);
  receiver_.reset();
  streaming_ = false;
  if (road_) {
    road_->close();
    road_.reset();
  }
  data_.reset();
}

void RankDriver::redial(const Status& why) {
  log("leaving the publisher: " + why.to_string());
  last_error_ = why;
  const control::PeerId peer = std::exchange(peer_, 0);
  feed(protocol::RankMachine::Disconnected{why});
  drop_road();
  dialer_.close(peer, true);
}

void RankDriver::say_hello_again() {
  machine_.set_plan(load_plan_digest(parts_.plan), parts_.plan.generation);
  if (peer_ == 0) {
    return;
  }
  const Status why(Code::kUnavailable, "the engine's layout moved: this rank says hello again");
  log(why.message());
  const control::PeerId peer = std::exchange(peer_, 0);
  feed(protocol::RankMachine::Disconnected{why});
  drop_road();
  dialer_.close(peer, true);
}

// Once per update; in `swap` it rises where nobody waits, so this is its time.
void RankDriver::note_fence() {
  if (!fence_noted_ && parts_.fence.up()) {
    fence_noted_ = true;
    const Instant now = parts_.clock.now();
    machine_.handle(protocol::RankMachine::FenceRose{parts_.fence.raised_at().value_or(now)}, now);
  }
}

void RankDriver::show_progress() {
  const uint64_t bytes = receiver_->payload_bytes();
  if (parts_.options.on_progress) {
    const Status status = call("on_progress", [&] {
      parts_.options.on_progress(bytes);
      return Status();
    });
    if (!status.ok()) {
      receiver_->fail(status);  // The rest is drained, and the vote says why (rule R1).
    }
  }
}

void RankDriver::stop() {
  interrupt();
  feed(protocol::RankMachine::Stop{});
  drop_road();
  loop_.stop();
  dialer_.drop();
  publish_status();
}

void RankDriver::reloaded() {
  feed(protocol::RankMachine::Reloaded{});
  publish_status();
}

void RankDriver::publish_status() {
  const std::lock_guard lock(status_mutex_);
  status_.rank = {parts_.options.engine, parts_.options.rank};
  status_.incarnation = incarnation_;
  status_.version = parts_.transaction.version();
  status_.digest = parts_.transaction.digest();
  status_.phase = std::string(machine_.phase_text());
  status_.connected = machine_.connected();
  status_.updates_committed = machine_.updates_committed();
  status_.updates_aborted = machine_.updates_aborted();
  status_.last_error = last_error_;
  last_report_ = machine_.last_report();
  staged_.reset();
  if (const auto id = machine_.staged_update()) {
    staged_ = Staged{*id, parts_.transaction.target()};
  }
}

std::optional<RankDriver::Staged> RankDriver::staged() const {
  const std::lock_guard lock(status_mutex_);
  return staged_;
}

void RankDriver::at_boundary(const UpdateId& id) {
  {
    const std::lock_guard lock(status_mutex_);
    if (!staged_ || staged_->id != id) {
      return;
    }
    boundary_ = id;
    staged_.reset();
  }
  inbox_.wake();
}

void RankDriver::cross_boundary() {
  std::optional<UpdateId> id;
  {
    const std::lock_guard lock(status_mutex_);
    id = boundary_;
  }
  if (!id) {
    return;
  }
  feed(protocol::RankMachine::AtBoundary{*id});
  {
    const std::lock_guard lock(status_mutex_);
    boundary_.reset();
  }
  crossed_.notify_all();
}

Status RankDriver::wait_for_boundary(Instant until) {
  std::unique_lock lock(status_mutex_);
  if (os::wait_until(crossed_, lock, parts_.clock, until, [this] { return !boundary_; })) {
    return {};
  }
  return {Code::kDeadline, "the change-over did not begin in time"};
}

RankStatus RankDriver::status() const {
  RankStatus status;
  {
    const std::lock_guard lock(status_mutex_);
    status = status_;
  }
  add_fence(parts_.fence.state(), status);
  return status;
}

std::optional<RankReport> RankDriver::last_report() const {
  const std::lock_guard lock(status_mutex_);
  return last_report_;
}

void RankDriver::log(const std::string& line) const {
  log_line(parts_.options, line);
}

}  // namespace changeover::runtime
