#include "reference/step_conductor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace changeover::reference {
namespace {

std::string text_of(const std::optional<VersionStamp>& version) {
  if (!version) {
    return "no version";
  }
  return version->epoch == 0 ? fmt::format("version {}", version->version)
                             : fmt::format("version {}.{}", version->epoch, version->version);
}

}  // namespace

StepConductor::StepConductor(Options options)
    : options_(std::move(options)),
      peers_(static_cast<size_t>(std::max(1, options_.identity.engine_size))) {}

void StepConductor::handle(const Event& event, Instant now) {
  std::visit([&](const auto& e) { on(e, now); }, event);
  try_start(now);
}

std::optional<StepConductor::Action> StepConductor::poll() {
  if (actions_.empty()) {
    return std::nullopt;
  }
  Action action = std::move(actions_.front());
  actions_.pop_front();
  return action;
}

Instant StepConductor::deadline() const {
  Instant due = phase_deadline_;
  for (const auto& [link, stranger] : strangers_) {
    due = std::min(due, stranger.deadline);
  }
  if (phase_ == Phase::kIdle && all_here()) {
    Instant start = start_at_;
    for (const Peer& peer : peers_) {
      start = std::max(start, peer.ask_at);
    }
    due = std::min(due, start);
  }
  return due;
}

// Nobody is asked while a rank is missing, so what the others said before may be over: then the
// missing ones alone are named.
std::string StepConductor::waiting_for() const {
  const bool complete = std::all_of(peers_.begin(), peers_.end(),
                                    [](const Peer& peer) { return peer.link.has_value(); });
  std::string text;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (complete ? !peer.reason.empty() : !peer.link) {
      text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank,
                          complete ? peer.reason : "not here");
    }
  }
  return text.empty() ? mismatch_ : text;
}

void StepConductor::on(const LinkOpened& event, Instant now) {
  if (strangers_.size() >= options_.strangers_max) {
    actions_.push_back(CloseLink{event.link, "too many peers that said nothing yet"});
    return;
  }
  strangers_[event.link] = {now + options_.hello_timeout};
}

void StepConductor::on(const LinkClosed& event, Instant) {
  strangers_.erase(event.link);
  const auto at = ranks_.find(event.link);
  if (at == ranks_.end()) {
    return;
  }
  Peer& peer = peers_[static_cast<size_t>(at->second)];
  ranks_.erase(at);
  if (peer.link != event.link) {
    return;  // Replaced by a newer link of the same process.
  }
  peer = Peer{};
  if (phase_ == Phase::kPreparing) {
    cancel();
  } else if (phase_ == Phase::kRunning) {
    finish(false);
  } else {
    send_all(pause());  // The others are told for whom they wait.
  }
}

void StepConductor::on(const Received& event, Instant now) {
  const StepMessage& message = event.message;
  const auto at = ranks_.find(event.link);
  if (message.kind == StepKind::kHello) {
    return hello(event.link, message);
  }
  if (at == ranks_.end()) {
    if (strangers_.contains(event.link)) {
      refuse(event.link, fmt::format("a {} came before hello", step_kind_name(message.kind)));
    }
    return;
  }
  Peer& peer = peers_[static_cast<size_t>(at->second)];
  if (peer.link != event.link || peer.incarnation != message.sender) {
    return;
  }
  switch (message.kind) {
    case StepKind::kAnswer:
      return answer(peer, message, now);
    case StepKind::kDone:
      return done(peer, message, now);
    case StepKind::kReady:
      peer.ask_at = Instant{};
      peer.reason.clear();
      return;
    default:
      return;  // A conductor's word: not meant for us.
  }
}

void StepConductor::hello(LinkId link, const StepMessage& message) {
  if (const auto at = ranks_.find(link); at != ranks_.end()) {
    actions_.push_back(Send{link, welcome()});  // A repeat: the same answer.
    return;
  }
  if (!strangers_.contains(link)) {
    return;
  }
  if (std::string why = refusal(message); !why.empty()) {
    return refuse(link, std::move(why));
  }
  Peer& peer = peers_[static_cast<size_t>(message.rank)];
  if (peer.link) {  // The same process dialled anew before we saw its old link close.
    const LinkId old = *peer.link;
    actions_.push_back(CloseLink{old, "replaced by a newer link of the same process"});
    on(LinkClosed{old}, Instant{});
  }
  strangers_.erase(link);
  ranks_[link] = message.rank;
  peer = Peer{};
  peer.link = link;
  peer.incarnation = message.sender;
  step_ = std::max(step_, message.step);
  last_run_ = std::max(last_run_, message.last_run);
  actions_.push_back(Send{link, welcome()});
}

std::string StepConductor::refusal(const StepMessage& message) const {
  const StepIdentity& own = options_.identity;
  if (message.job != own.job) {
    return fmt::format("these are the steps of job \"{}\", not of job \"{}\"", own.job,
                       message.job);
  }
  if (message.engine != own.engine) {
    return fmt::format("these are the steps of engine \"{}\", not of engine \"{}\"", own.engine,
                       message.engine);
  }
  if (message.engine_size != own.engine_size) {
    return fmt::format("engine \"{}\" has {} ranks here, {} there: start all with one --tp",
                       own.engine, own.engine_size, message.engine_size);
  }
  if (message.rank < 0 || message.rank >= own.engine_size) {
    return fmt::format("rank {} of an engine of {} ranks", message.rank, own.engine_size);
  }
  const Peer& peer = peers_[static_cast<size_t>(message.rank)];
  if (peer.link && peer.incarnation != message.sender) {
    return fmt::format("rank {} of engine \"{}\" is another process that is still here",
                       message.rank, own.engine);
  }
  if (std::max(message.step, message.last_run) > kStepNumberMax / 2) {
    return fmt::format("step {} is out of range", std::max(message.step, message.last_run));
  }
  return {};
}

void StepConductor::answer(Peer& peer, const StepMessage& message, Instant now) {
  if (message.step != step_) {
    return;
  }
  peer.next = message.next;
  if (message.yes && message.version) {
    peer.reason.clear();
    peer.ask_at = Instant{};
  } else {
    peer.reason = message.text.empty() ? "cannot, and does not say why" : message.text;
    peer.ask_at = now + options_.ask_again;
  }
  if (phase_ != Phase::kPreparing) {
    return change_idle_ranks();  // Late: the step is cancelled already.
  }
  if (!peer.reason.empty()) {
    cancel();
    return change_idle_ranks();
  }
  peer.answered = true;
  peer.version = message.version;
  if (all_answered()) {
    go(now);
  }
}

std::optional<VersionStamp> StepConductor::change_due() const {
  const auto target = [](const Peer& peer) { return peer.next ? peer.next : peer.version; };
  bool any = false;
  for (const Peer& peer : peers_) {
    any = any || target(peer) != peer.version;
    if (target(peer) != target(peers_[0])) {
      return std::nullopt;
    }
  }
  return any ? target(peers_[0]) : std::nullopt;
}

// Who has to wait for its fence says "cannot" to the next prepare, and "ready" when it fell; where
// guards carry versions the next step goes at once.
void StepConductor::change(VersionStamp version, Instant now) {
  phase_ = Phase::kIdle;
  phase_deadline_ = Instant::never();
  mismatch_.clear();
  start_at_ = now;
  StepMessage message = blank(StepKind::kChange);
  message.version = version;
  send_all(std::move(message));
}

void StepConductor::change_idle_ranks() {
  const bool idle =
      phase_ == Phase::kIdle && std::any_of(peers_.begin(), peers_.end(),
                                            [](const Peer& peer) { return !peer.reason.empty(); });
  for (Peer& peer : peers_) {
    if (idle && peer.link && peer.next) {
      StepMessage message = blank(StepKind::kChange);
      message.version = std::exchange(peer.next, std::nullopt);
      actions_.push_back(Send{*peer.link, std::move(message)});
    }
  }
}

// All ranks hold a guard: their versions stand still until we decide.
void StepConductor::go(Instant now) {
  if (const auto version = change_due()) {
    return change(*version, now);
  }
  for (size_t rank = 1; rank < peers_.size(); ++rank) {
    if (peers_[rank].version != peers_[0].version) {
      mismatch_ = fmt::format("rank {} holds {}, rank 0 {}: no step until both hold one version",
                              rank, text_of(peers_[rank].version), text_of(peers_[0].version));
      start_at_ = std::max(start_at_, now + options_.mismatch_again);
      return cancel();
    }
  }
  mismatch_.clear();
  phase_ = Phase::kRunning;
  phase_deadline_ = now + options_.run_timeout;
  StepMessage run = blank(StepKind::kRun);
  run.version = peers_[0].version;
  for (Peer& peer : peers_) {
    peer.answered = false;
  }
  send_all(std::move(run));
}

void StepConductor::done(Peer& peer, const StepMessage& message, Instant now) {
  if (message.step != step_) {
    return;
  }
  peer.ask_at = Instant{};
  peer.reason.clear();
  if (phase_ != Phase::kRunning) {
    return;
  }
  if (!message.yes || message.version != peer.version) {
    peer.reason = message.text;
    peer.ask_at = now + options_.ask_again;
    return finish(false);
  }
  peer.answered = true;
  if (all_answered()) {
    finish(true);
  }
}

void StepConductor::on(const Tick&, Instant now) {
  std::vector<LinkId> late;
  for (const auto& [link, stranger] : strangers_) {
    if (now >= stranger.deadline) {
      late.push_back(link);
    }
  }
  for (const LinkId link : late) {
    refuse(link, "connected and said nothing");
  }
  if (now >= phase_deadline_) {
    overdue(now);
  }
}

void StepConductor::overdue(Instant now) {
  const bool running = phase_ == Phase::kRunning;
  const double waited =
      std::chrono::duration<double>(running ? options_.run_timeout : options_.answer_timeout)
          .count();
  for (Peer& peer : peers_) {
    if (!peer.answered) {
      peer.reason = fmt::format("silent for {:.3g} s in step {}", waited, step_);
      peer.ask_at = now + options_.silent_again;
    }
  }
  if (running) {
    finish(false);
  } else {
    cancel();
  }
}

void StepConductor::try_start(Instant now) {
  if (phase_ != Phase::kIdle || now < start_at_ || !all_here()) {
    return;
  }
  for (const Peer& peer : peers_) {
    if (now < peer.ask_at) {
      return;
    }
  }
  ++step_;
  phase_ = Phase::kPreparing;
  phase_deadline_ = now + options_.answer_timeout;
  start_at_ = now + options_.interval;
  for (Peer& peer : peers_) {
    peer.answered = false;
    peer.version.reset();
    peer.next.reset();
  }
  send_all(blank(StepKind::kPrepare));
}

void StepConductor::cancel() {
  phase_ = Phase::kIdle;
  phase_deadline_ = Instant::never();
  send_all(pause());
}

void StepConductor::finish(bool counts) {
  phase_ = Phase::kIdle;
  phase_deadline_ = Instant::never();
  if (counts) {
    last_run_ = step_;
  }
  StepMessage message = blank(StepKind::kClose);
  message.yes = counts;
  message.text = counts ? "" : waiting_for();
  send_all(std::move(message));
}

void StepConductor::send_all(StepMessage message) {
  for (const Peer& peer : peers_) {
    if (peer.link) {
      actions_.push_back(Send{*peer.link, message});
    }
  }
}

void StepConductor::refuse(LinkId link, std::string text) {
  StepMessage message = blank(StepKind::kRefuse);
  message.text = text;
  actions_.push_back(Send{link, std::move(message)});
  actions_.push_back(CloseLink{link, std::move(text)});
  strangers_.erase(link);
}

bool StepConductor::all_here() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& p) { return p.link.has_value(); });
}

bool StepConductor::all_answered() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.answered; });
}

StepMessage StepConductor::welcome() const {
  StepMessage message = blank(StepKind::kWelcome);
  message.text = waiting_for();
  return message;
}

StepMessage StepConductor::pause() const {
  StepMessage message = blank(StepKind::kCancel);
  message.text = waiting_for();
  return message;
}

StepMessage StepConductor::blank(StepKind kind) const {
  StepMessage message;
  message.kind = kind;
  message.sender = options_.identity.incarnation;
  message.step = step_;
  message.last_run = last_run_;
  message.rank = options_.identity.rank;
  message.engine_size = options_.identity.engine_size;
  return message;
}

}  // namespace changeover::reference
