#include "reference/step_loop.h"

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/digest.h"
#include "os/clock.h"
#include "os/poll.h"
#include "os/socket.h"
#include "reference/step_link.h"

namespace changeover::reference {
namespace {

constexpr std::chrono::milliseconds kDialTimeout(50);  // an abstract socket answers at once
constexpr int kAcceptsPerTurn = 8;
constexpr std::chrono::seconds kAcceptPause(1);

class Loop final : public StepLoop {
 public:
  Loop(StepLoopOptions options, os::Doorbell bell, std::optional<os::Fd> listener)
      : options_(std::move(options)),
        bell_(std::move(bell)),
        listener_(std::move(listener)),
        follower_(options_.follower) {
    if (listener_) {
      options_.conductor.identity = options_.follower.identity;
      conductor_.emplace(options_.conductor);
    }
  }

  ~Loop() override {
    {
      const std::lock_guard lock(inbox_mutex_);
      stop_ = true;
    }
    bell_.ring();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void launch(StepWorker::Engine engine) {
    worker_ = std::make_unique<StepWorker>(std::move(engine), [this](StepFollower::Event e) {
      {
        const std::lock_guard lock(inbox_mutex_);
        inbox_.push_back(std::move(e));
      }
      bell_.ring();
    });
    thread_ = std::thread([this] { run(); });
  }

  StepStatus status() const override {
    const std::lock_guard lock(machines_mutex_);
    StepStatus status = follower_.status(clock_.now());
    if (conductor_ && status.waiting_for.empty()) {
      status.waiting_for = conductor_->waiting_for();
    }
    return status;
  }

 private:
  void run();
  void wait(Instant deadline);
  bool take_inbox();
  void accept_links();
  void read_links();
  void read_link(uint64_t id, StepLink& link);
  void pump();
  void act(const StepFollower::Action& action);
  void act(const StepConductor::Action& action);
  void dial();
  void follow(const StepFollower::Event& event) { follower_.handle(event, clock_.now()); }
  void conduct(const StepConductor::Event& event) { conductor_->handle(event, clock_.now()); }
  void lost(uint64_t id, const Status& why);

  // The follower's own link: to a conductor elsewhere (up_), or in this process (local_).
  bool up_is(uint64_t id) const { return up_ == id; }

  StepLoopOptions options_;
  os::SystemClock clock_;
  os::Doorbell bell_;
  std::optional<os::Fd> listener_;
  Instant accept_at_{};

  mutable std::mutex machines_mutex_;  // the machines; held while an event is handled
  StepFollower follower_;
  std::optional<StepConductor> conductor_;

  std::map<uint64_t, StepLink> links_;
  uint64_t next_link_ = 1;
  std::optional<uint64_t> up_;
  std::optional<uint64_t> local_;
  std::vector<std::pair<uint64_t, Status>> broken_;  // found while acting, told afterwards
  std::vector<StepMessage> messages_;
  std::vector<pollfd> polled_;
  std::vector<uint64_t> polled_links_;

  std::mutex inbox_mutex_;
  std::vector<StepFollower::Event> inbox_;  // the worker answers each order once: a handful
  bool stop_ = false;
  std::unique_ptr<StepWorker> worker_;
  std::thread thread_;
};

void Loop::run() {
  while (true) {
    Instant deadline;
    {
      const std::lock_guard lock(machines_mutex_);
      if (!take_inbox()) {
        break;
      }
      read_links();
      accept_links();
      follow(StepFollower::Tick{});
      if (conductor_) {
        conduct(StepConductor::Tick{});
      }
      pump();
      deadline = follower_.deadline();
      if (conductor_) {
        deadline = std::min(deadline, conductor_->deadline());
      }
    }
    wait(deadline);
  }
  worker_.reset();  // Gives the guard back before anybody waits for this rank.
  links_.clear();
  listener_.reset();
}

void Loop::wait(Instant deadline) {
  polled_.clear();
  polled_links_.clear();
  polled_.push_back({bell_.fd().get(), POLLIN, 0});
  if (listener_ && clock_.now() >= accept_at_) {
    polled_.push_back({listener_->get(), POLLIN, 0});
  } else if (listener_) {
    deadline = std::min(deadline, accept_at_);
  }
  for (const auto& [id, link] : links_) {
    const short out = link.has_unsent() ? POLLOUT : 0;
    polled_.push_back({link.fd().get(), static_cast<short>(POLLIN | out), 0});
    polled_links_.push_back(id);
  }
  const auto ready = os::poll_until(polled_, clock_, deadline);
  static_cast<void>(ready);  // Whatever woke us is looked at by the next turn.
  bell_.clear();
}

// False when it is time to stop.
bool Loop::take_inbox() {
  std::vector<StepFollower::Event> events;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (stop_) {
      return false;
    }
    events.swap(inbox_);
  }
  for (const StepFollower::Event& event : events) {
    follow(event);
    pump();
  }
  return true;
}

void Loop::accept_links() {
  for (int i = 0; listener_ && i < kAcceptsPerTurn; ++i) {
    auto fd = os::accept_connection(*listener_, clock_, clock_.now());
    if (!fd.ok()) {
      if (fd.status().code() != Code::kDeadline) {  // No descriptors left: it stays readable.
        accept_at_ = clock_.now() + kAcceptPause;
      }
      return;
    }
    const auto peer = os::peer_credentials(*fd);
    StepLink link(std::move(fd).take());
    if (!peer.ok() || peer->uid != ::getuid()) {
      StepMessage refuse;
      refuse.kind = StepKind::kRefuse;
      refuse.sender = options_.follower.identity.incarnation;
      refuse.text = fmt::format("this engine runs as user {}, not as user {}", ::getuid(),
                                peer.ok() ? std::to_string(peer->uid) : "unknown");
      static_cast<void>(link.send(refuse).ok());
      continue;
    }
    const uint64_t id = next_link_++;
    links_.emplace(id, std::move(link));
    conduct(StepConductor::LinkOpened{id});
    pump();
  }
}

void Loop::read_links() {
  std::vector<uint64_t> ids;
  for (const auto& [id, link] : links_) {
    ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    if (const auto at = links_.find(id); at != links_.end()) {
      read_link(id, at->second);
    }
  }
}

void Loop::read_link(uint64_t id, StepLink& link) {
  messages_.clear();
  Status status = link.read(messages_);
  for (const StepMessage& message : messages_) {
    if (up_is(id)) {
      follow(StepFollower::Received{message});
    } else {
      conduct(StepConductor::Received{id, message});
    }
  }
  if (status.ok()) {
    status = link.flush();
  }
  pump();  // May have closed this very link.
  if (!status.ok()) {
    lost(id, status);
    pump();
  }
}

void Loop::lost(uint64_t id, const Status& why) {
  if (links_.erase(id) == 0) {
    return;
  }
  if (up_is(id)) {
    up_.reset();
    follow(StepFollower::LinkDown{why.message()});
  } else {
    conduct(StepConductor::LinkClosed{id});
  }
}

// Does what the machines ask until both are quiet. Only this loop polls them, so an action never
// runs inside another.
void Loop::pump() {
  bool more = true;
  while (more) {
    more = false;
    while (const auto action = follower_.poll()) {
      act(*action);
      more = true;
    }
    while (conductor_) {
      const auto action = conductor_->poll();
      if (!action) {
        break;
      }
      act(*action);
      more = true;
    }
    for (const auto& [id, why] : std::exchange(broken_, {})) {
      lost(id, why);
      more = true;
    }
  }
}

void Loop::act(const StepFollower::Action& action) {
  if (std::holds_alternative<StepFollower::Dial>(action)) {
    dial();
  } else if (std::holds_alternative<StepFollower::CloseLink>(action)) {
    if (up_) {
      links_.erase(*std::exchange(up_, std::nullopt));
    } else if (local_) {
      conduct(StepConductor::LinkClosed{*std::exchange(local_, std::nullopt)});
    }
    follow(StepFollower::LinkDown{});
  } else if (const auto* send = std::get_if<StepFollower::Send>(&action)) {
    if (local_) {
      conduct(StepConductor::Received{*local_, send->message});
    } else if (up_) {
      if (Status status = links_.at(*up_).send(send->message); !status.ok()) {
        broken_.emplace_back(*up_, std::move(status));
      }
    }
  } else if (const auto* take = std::get_if<StepFollower::TakeGuard>(&action)) {
    worker_->order(*take);
  } else if (const auto* drop = std::get_if<StepFollower::DropGuard>(&action)) {
    worker_->order(*drop);
  } else if (const auto* await = std::get_if<StepFollower::AwaitFence>(&action)) {
    worker_->order(*await);
  } else if (const auto* change = std::get_if<StepFollower::ChangeOver>(&action)) {
    worker_->order(*change);
  } else {
    worker_->order(std::get<StepFollower::Compute>(action));
  }
}

void Loop::act(const StepConductor::Action& action) {
  if (const auto* close = std::get_if<StepConductor::CloseLink>(&action)) {
    if (local_ == close->link) {
      local_.reset();
      follow(StepFollower::LinkDown{close->why});
    } else if (links_.erase(close->link) != 0) {
      conduct(StepConductor::LinkClosed{close->link});
    }
    return;
  }
  const auto& send = std::get<StepConductor::Send>(action);
  if (local_ == send.link) {
    follow(StepFollower::Received{send.message});
  } else if (const auto at = links_.find(send.link); at != links_.end()) {
    if (Status status = at->second.send(send.message); !status.ok()) {
      broken_.emplace_back(send.link, std::move(status));
    }
  }
}

void Loop::dial() {
  if (conductor_) {
    local_ = next_link_++;
    conduct(StepConductor::LinkOpened{*local_});
    return follow(StepFollower::LinkUp{});
  }
  auto fd = os::dial_unix(options_.socket, clock_, clock_.now() + kDialTimeout);
  if (!fd.ok()) {
    return follow(StepFollower::LinkDown{fd.status().message()});
  }
  const auto peer = os::peer_credentials(*fd);
  if (!peer.ok() || peer->uid != ::getuid()) {
    return follow(StepFollower::LinkDown{fmt::format(
        "its socket \"@{}\" is held by user {}, this rank runs as user {}", options_.socket,
        peer.ok() ? std::to_string(peer->uid) : "unknown", ::getuid())});
  }
  up_ = next_link_++;
  links_.emplace(*up_, StepLink(std::move(fd).take()));
  follow(StepFollower::LinkUp{});
}

}  // namespace

std::string step_socket_name(const Endpoint& endpoint, const std::string& job,
                             const std::string& engine) {
  base::Hasher hasher;
  for (const std::string& part : {endpoint.to_string(), job, engine}) {
    hasher.update(std::as_bytes(std::span(part.c_str(), part.size() + 1)));
  }
  return fmt::format("changeover.step.{}.{}", ::getuid(), hasher.finish().to_text());
}

Result<std::unique_ptr<StepLoop>> StepLoop::start(StepLoopOptions options,
                                                  StepWorker::Engine engine) {
  CHANGEOVER_TRY_ASSIGN(os::Doorbell bell, os::Doorbell::create());
  std::optional<os::Fd> listener;
  if (options.follower.identity.rank == 0) {
    auto fd = os::listen_unix(options.socket);
    if (!fd.ok()) {
      return fd.status().with_context(
          fmt::format("rank 0 of engine \"{}\"", options.follower.identity.engine));
    }
    listener = std::move(fd).take();
  }
  auto loop = std::make_unique<Loop>(std::move(options), std::move(bell), std::move(listener));
  loop->launch(std::move(engine));
  return std::unique_ptr<StepLoop>(std::move(loop));
}

}  // namespace changeover::reference
