#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <changeover/reference_rank.h>

#include <fmt/format.h>

#include "os/clock.h"
#include "os/poll.h"
#include "reference/admin_protocol.h"
#include "reference/admin_server.h"
#include "reference/live_pass.h"
#include "reference/rank_parts.h"
#include "reference/step_loop.h"

namespace changeover::reference {
namespace {

constexpr std::chrono::milliseconds kDigestGuardWait(200);
constexpr int kDigestTries = 3;
constexpr std::chrono::hours kFileReceiveTimeout(1);  // a file has its own deadlines

// Phases of an update in which nobody writes into live memory.
bool stands_still(std::string_view phase) {
  return phase == "idle" || phase == "disconnected" || phase == "in_doubt";
}

class Rank final : public ReferenceRank {
 public:
  Rank(ReferenceRankOptions options, RankParts parts, os::Doorbell stop, os::Doorbell received)
      : options_(std::move(options)),
        parts_(std::move(parts)),
        pass_(*parts_.store, options_.step_bytes_max),
        stop_(std::move(stop)),
        received_(std::move(received)) {
    facts_.job = options_.subscriber.job;
    facts_.endpoint = options_.subscriber.endpoint.to_string();
    facts_.engine_size = options_.subscriber.engine_size;
    facts_.plan_options = options_.plan;
    facts_.architecture = parts_.plan.architecture;
    facts_.plan_digest = load_plan_digest(parts_.plan);
  }

  Status run() override;
  void request_stop() override { stop_.ring(); }
  RankStatus status() const override { return parts_.subscriber->status(); }
  std::optional<RankReport> last_report() const override {
    return parts_.subscriber->last_report();
  }
  StepStatus steps() const override {
    const std::lock_guard lock(loop_mutex_);
    return loop_ ? loop_->status() : StepStatus{};
  }
  const LoadPlan& plan() const override { return parts_.plan; }

 private:
  bool from_file() const { return options_.subscriber.endpoint.kind == Endpoint::Kind::kFile; }
  Status start_steps();
  Status receive_file();
  std::string answer(std::string_view line);
  Result<AdminDigests> digests();
  std::optional<AdminDigests> digests_now(Status& why_not);
  std::optional<AdminDigests> guarded_digests(Fence::Guard guard, Status& why_not);
  AdminDigests digests_of(uint32_t half) const;
  RankName name() const { return {options_.subscriber.engine, options_.subscriber.rank}; }

  ReferenceRankOptions options_;
  RankParts parts_;
  LivePass pass_;
  AdminFacts facts_;
  os::SystemClock clock_;
  os::Doorbell stop_;
  os::Doorbell received_;
  std::atomic<bool> receiving_file_ = false;
  mutable std::mutex loop_mutex_;
  std::unique_ptr<StepLoop> loop_;
};

Status Rank::run() {
  std::unique_ptr<AdminServer> admin;
  if (!options_.admin_path.empty()) {
    CHANGEOVER_TRY_ASSIGN(
        admin, AdminServer::start(
                   {.path = options_.admin_path},
                   [this](std::string_view line) { return answer(line); }, admin_error_reply));
  }
  CHANGEOVER_TRY(start_steps());
  Status result;
  bool ended = false;
  if (from_file()) {
    result = receive_file();
    ended = !result.ok() || options_.once;
  } else {
    result = parts_.subscriber->start();
    ended = !result.ok();
  }
  if (!ended) {
    pollfd polled{stop_.fd().get(), POLLIN, 0};
    CHANGEOVER_TRY_ASSIGN(const int rung, os::poll_until({&polled, 1}, clock_, Instant::never()));
    static_cast<void>(rung);
  }
  {
    // The steps end first: the fence never waits for a guard of a rank that is going.
    const std::lock_guard lock(loop_mutex_);
    loop_.reset();
  }
  parts_.subscriber->stop();
  return result;
}

Status Rank::start_steps() {
  StepLoopOptions steps;
  const SubscriberOptions& own = options_.subscriber;
  steps.socket = options_.step_socket.empty() ? step_socket_name(own.endpoint, own.job, own.engine)
                                              : options_.step_socket;
  steps.follower.identity = {own.job, own.engine, own.rank, own.engine_size,
                             parts_.subscriber->status().incarnation};
  steps.conductor.interval = options_.step_interval;
  Subscriber& subscriber = *parts_.subscriber;
  CHANGEOVER_TRY_ASSIGN(
      auto loop,
      StepLoop::start(
          std::move(steps),
          {.fence = subscriber.fence(),
           .pass = [this](uint64_t step, uint32_t half) { return pass_.run(step, half); },
           .staged = [&subscriber] { return subscriber.staged(); },
           .change_over =
               [&subscriber](auto timeout) { return subscriber.change_over(timeout); }}));
  const std::lock_guard lock(loop_mutex_);
  loop_ = std::move(loop);
  return {};
}

// A file has one stream and no other ranks to ask. It is received on a thread of its own, so that
// a request to stop is heard meanwhile.
Status Rank::receive_file() {
  std::optional<Result<RankReport>> report;
  receiving_file_ = true;
  std::thread receiver([&] {
    report.emplace(parts_.subscriber->receive(kFileReceiveTimeout));
    received_.ring();
  });
  pollfd polled[2] = {{received_.fd().get(), POLLIN, 0}, {stop_.fd().get(), POLLIN, 0}};
  const auto rung = os::poll_until(polled, clock_, Instant::never());
  if (!rung.ok() || (polled[0].revents & POLLIN) == 0) {
    parts_.subscriber->stop();
  }
  receiver.join();
  receiving_file_ = false;
  if (!report->ok()) {
    return polled[1].revents & POLLIN ? Status() : report->status();
  }
  return (*report)->error;
}

std::string Rank::answer(std::string_view line) {
  const auto request = parse_admin_request(line);
  if (!request.ok()) {
    return admin_error_reply(request.status());
  }
  switch (*request) {
    case AdminRequest::kStatus:
      return admin_status_reply(facts_, status(), steps());
    case AdminRequest::kSteps:
      return admin_steps_reply(name(), steps());
    case AdminRequest::kReport:
      return admin_report_reply(name(), parts_.subscriber->last_report());
    case AdminRequest::kDigests: {
      const auto held = digests();
      return held.ok() ? admin_digests_reply(facts_, name(), *held)
                       : admin_error_reply(held.status());
    }
    case AdminRequest::kStop:
      request_stop();
      return admin_stop_reply(name());
  }
  return admin_error_reply({Code::kInvalidArgument, "unknown request"});
}

Result<AdminDigests> Rank::digests() {
  Status why_not;
  for (int i = 0; i < kDigestTries; ++i) {
    if (auto held = digests_now(why_not)) {
      return std::move(*held);
    }
  }
  return why_not;
}

// Under a guard the bytes stand still. Without one they do only while no update is being received,
// which is looked at before and after.
std::optional<AdminDigests> Rank::digests_now(Status& why_not) {
  auto guard = parts_.subscriber->fence().acquire(kDigestGuardWait);
  if (guard.ok()) {
    return guarded_digests(std::move(guard).take(), why_not);
  }
  const RankStatus before = status();
  if (receiving_file_ || !stands_still(before.phase)) {
    why_not = {Code::kTryLater,
               "an update is being received, the live bytes are changing: ask "
               "again when it has ended"};
    return std::nullopt;
  }
  AdminDigests held = digests_of(parts_.subscriber->fence().half());
  held.version = before.version;
  held.fenced = true;
  held.fence_reason = guard.status().message();
  const RankStatus after = status();
  if (receiving_file_ || after.phase != before.phase || after.version != before.version ||
      after.updates_committed != before.updates_committed ||
      after.updates_aborted != before.updates_aborted) {
    why_not = {Code::kTryLater, "an update began while the live bytes were read: ask again"};
    return std::nullopt;
  }
  return held;
}

// A guard for each parameter: one over them all would hold an update back for as long as the whole
// model takes to read. Between two of them an update may have come.
std::optional<AdminDigests> Rank::guarded_digests(Fence::Guard guard, Status& why_not) {
  AdminDigests held;
  held.parameters = parts_.plan.parameters;
  held.version = guard.version();
  for (size_t i = 0; i < held.parameters.size(); ++i) {
    if (i > 0) {
      guard.release();
      auto next = parts_.subscriber->fence().acquire(kDigestGuardWait);
      if (!next.ok() || next->version() != *held.version) {
        why_not = {Code::kTryLater, "an update came while the live bytes were read: ask again"};
        return std::nullopt;
      }
      guard = std::move(next).take();
    }
    held.digests.push_back(live_digest(parts_.store->half(guard.half())[i]));
  }
  return held;
}

AdminDigests Rank::digests_of(uint32_t half) const {
  AdminDigests held;
  held.parameters = parts_.plan.parameters;
  held.digests = live_digests(*parts_.store, half);
  return held;
}

}  // namespace

Result<std::unique_ptr<ReferenceRank>> make_reference_rank(ReferenceRankOptions options,
                                                           RankParts parts) {
  CHANGEOVER_TRY_ASSIGN(os::Doorbell stop, os::Doorbell::create());
  CHANGEOVER_TRY_ASSIGN(os::Doorbell received, os::Doorbell::create());
  return std::unique_ptr<ReferenceRank>(std::make_unique<Rank>(
      std::move(options), std::move(parts), std::move(stop), std::move(received)));
}

}  // namespace changeover::reference

namespace changeover {

Result<std::unique_ptr<ReferenceRank>> ReferenceRank::open(ReferenceRankOptions options) {
  const SubscriberOptions& own = options.subscriber;
  if (own.engine_size < 1 || own.rank < 0 || own.rank >= own.engine_size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} of an engine of {}: ranks count from 0 to tp x dp, less one",
                              own.rank, own.engine_size));
  }
  if (own.endpoint.kind == Endpoint::Kind::kFile && own.engine_size != 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a file is received by one rank that decides alone: --tp 1, not {}",
                              own.engine_size));
  }
  if (options.dp_size < 1 || own.engine_size % options.dp_size != 0) {
    return Status(Code::kInvalidArgument, fmt::format("dp {} does not divide the engine's {} ranks",
                                                      options.dp_size, own.engine_size));
  }
  CHANGEOVER_TRY(place_rank({own.engine_size / options.dp_size, options.dp_size, options.ep_size},
                            own.rank, options.plan));
  if (!options.plan.model_file.empty()) {  // `verify` may run in another folder.
    std::error_code error;
    const auto absolute = std::filesystem::absolute(options.plan.model_file, error);
    if (error) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: its folder cannot be named: {}",
                                options.plan.model_file.string(), error.message()));
    }
    options.plan.model_file = absolute;
  }
  reference::RankParts parts;
  CHANGEOVER_TRY_ASSIGN(parts.plan, make_load_plan(options.model, options.plan));
  CHANGEOVER_TRY_ASSIGN(parts.store, ParameterStore::allocate(parts.plan));
  SubscriberOptions subscriber = own;
  subscriber.engine_picks_boundary = true;  // Rank 0 conducts the steps.
  CHANGEOVER_TRY_ASSIGN(parts.subscriber, Subscriber::open(subscriber, parts.plan, *parts.store));
  return reference::make_reference_rank(std::move(options), std::move(parts));
}

}  // namespace changeover
