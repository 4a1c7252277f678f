#include "runtime/publisher_core.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "control/codec.h"
#include "os/entropy.h"
#include "os/error.h"
#include "os/wait.h"
#include "runtime/callback.h"

namespace changeover::runtime {
namespace {

void entropy(std::span<uint8_t> bytes) {
  (void)os::fill_random(std::as_writable_bytes(bytes));
}

protocol::CoordinatorOptions coordinator_options(const PublisherOptions& options,
                                                 const Incarnation& incarnation) {
  protocol::CoordinatorOptions out;
  out.job = options.job;
  out.incarnation = incarnation;
  out.deadlines = options.deadlines;
  return out;
}

}  // namespace

PublisherCore::PublisherCore(const PublisherOptions& options, const Incarnation& incarnation,
                             uint32_t peers_max, const os::Clock& clock)
    : options_(options),
      clock_(clock),
      peers_max_(peers_max),
      coordinator_(coordinator_options(options, incarnation)) {}

// What was sent last is read by each rank before its connection goes: without its release a rank
// would hold the new version and not serve it. A rank that does not read is waited for as long as
// a connection that closes may take, a heartbeat, which is at most a second.
PublisherCore::~PublisherCore() {
  if (listener_ != nullptr) {
    auto closed = std::make_shared<std::promise<void>>();  // Shared: the wait may end first.
    listener_->close_all([closed] { closed->set_value(); });
    (void)closed->get_future().wait_for(std::chrono::seconds(2));
  }
  loop_.stop();
}

Status PublisherCore::listen() {
  control::ChannelOptions channel;
  channel.job = options_.job;
  channel.token = options_.token;
  channel.handshake = options_.deadlines.connect;
  channel.set_silence(options_.deadlines.stall);
  channel.peers_max = peers_max_;
  CHANGEOVER_TRY_ASSIGN(listener_,
                        control::Listener::open(options_.endpoint, channel, loop_, *this, entropy));
  if (options_.token.empty() && options_.endpoint.kind == Endpoint::Kind::kTcp) {
    const Session session(*this);
    log("no token: every user of this host may take the weights");
  }
  loop_.start();
  return {};
}

std::vector<PeerStatus> PublisherCore::peers() const {
  const std::lock_guard lock(mutex_);
  return coordinator_.peers();
}

Status PublisherCore::wait_for_ranks(uint32_t count, std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (os::wait_until(changed_, lock, clock_, clock_.now() + timeout,
                     [&] { return coordinator_.complete_ranks() >= count; })) {
    last_refused_.clear();
    return {};
  }
  const std::string missing = coordinator_.missing_ranks();
  return {Code::kDeadline, "waited " + os::duration_text(timeout.count()) + " for " +
                               std::to_string(count) + " rank(s) of whole engines, " +
                               std::to_string(coordinator_.complete_ranks()) + " are here" +
                               (missing.empty() ? "" : "; missing: " + missing) +
                               (last_refused_.empty() ? "" : "; last refused: " + last_refused_)};
}

std::vector<PublisherCore::Attachment> PublisherCore::take_attachments() {
  const std::lock_guard lock(mutex_);
  std::vector<Attachment> out;
  for (auto& [id, peer] : peers_) {
    const RankName* rank = coordinator_.rank_of(id);
    if (rank != nullptr && peer.pending.valid()) {
      out.push_back({id, *rank, std::move(peer.pending)});
    }
  }
  return out;
}

void PublisherCore::feed(const Coordinator::Event& event) {
  const Session session(*this);
  handle(event);
}

void PublisherCore::handle(const Coordinator::Event& event) {
  coordinator_.handle(event, clock_.now());
  while (auto action = coordinator_.poll()) {
    if (auto* send = std::get_if<Coordinator::Send>(&*action)) {
      listener_->send(send->connection, control::encode(send->message));
    } else if (auto* close = std::get_if<Coordinator::CloseConnection>(&*action)) {
      log("rank let go: " + close->why.to_string());
      if (close->why.code() == Code::kRefused) {
        last_refused_ = close->why.message();
      }
      listener_->close(close->connection);
      peers_.erase(close->connection);
    } else {
      orders_.push_back(*std::move(action));
    }
  }
  changed_.notify_all();
  if (coordinator_.deadline() != armed_) {
    armed_ = coordinator_.deadline();
    loop_.post([this] { rearm(); });
  }
}

// Loop thread: the timer belongs to it.
void PublisherCore::rearm() {
  const std::lock_guard lock(mutex_);
  if (armed_ == Instant::never()) {
    loop_.cancel_timer();
    return;
  }
  const auto wait = std::max(armed_ - clock_.now(), std::chrono::nanoseconds(0));
  loop_.set_timer(wait, [this] {
    const Session session(*this);
    armed_ = Instant::never();  // So that handle() arms it again where there is more to wait for.
    handle(Coordinator::Tick{});
  });
}

PublisherCore::Coordinator::Action PublisherCore::wait_for_order() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !orders_.empty(); });
  auto order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

std::optional<PublisherCore::Coordinator::Action> PublisherCore::take_order() {
  const std::lock_guard lock(mutex_);
  if (orders_.empty()) {
    return std::nullopt;
  }
  auto order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

bool PublisherCore::is_done() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(orders_.begin(), orders_.end(), [](const auto& order) {
    return std::holds_alternative<Coordinator::UpdateDone>(order);
  });
}

bool PublisherCore::is_connected(control::PeerId peer) const {
  const std::lock_guard lock(mutex_);
  return peers_.count(peer) != 0;
}

void PublisherCore::let_go(control::PeerId peer, const Status& why) {
  const Session session(*this);
  if (peers_.count(peer) == 0) {
    return;
  }
  listener_->close(peer);
  peers_.erase(peer);
  handle(Coordinator::Closed{peer, why});
}

void PublisherCore::on_open(control::PeerId peer, const std::string& address) {
  const std::lock_guard lock(mutex_);
  peers_[peer].address = address;
}

void PublisherCore::on_data(control::PeerId peer, os::Fd fd) {
  const std::lock_guard lock(mutex_);
  const auto at = peers_.find(peer);
  if (at == peers_.end()) {
    return;
  }
  at->second.has_data = true;
  at->second.pending = std::move(fd);
}

void PublisherCore::on_frame(control::PeerId peer, std::span<const uint8_t> body) {
  auto message = control::decode(body);
  const Session session(*this);
  const auto at = peers_.find(peer);
  if (at == peers_.end()) {
    return;
  }
  Status wrong = message.status();
  if (wrong.ok() && !at->second.has_data) {
    wrong = {Code::kCorrupt, std::string(control::message_name(*message)) +
                                 " before the data connection: out of place"};
  }
  if (wrong.ok()) {
    const bool known = coordinator_.rank_of(peer) != nullptr;
    handle(Coordinator::Received{peer, *std::move(message)});
    if (const RankName* rank = coordinator_.rank_of(peer); rank != nullptr && !known) {
      const std::string missing = coordinator_.missing_ranks();
      log("rank " + rank->to_text() + " is here" +
          (missing.empty() ? "" : "; missing: " + missing));
    }
    return;
  }
  log(at->second.address + ": refused: " + wrong.to_string());
  listener_->send(peer, control::encode(protocol::HelloRefused{wrong, false}));
  listener_->close(peer);
  peers_.erase(peer);
  handle(Coordinator::Closed{peer, wrong});
}

void PublisherCore::on_closed(control::PeerId peer, const Status& why) {
  const Session session(*this);
  const auto at = peers_.find(peer);
  if (at == peers_.end()) {
    return;
  }
  const RankName* rank = coordinator_.rank_of(peer);
  log((rank == nullptr ? at->second.address : "rank " + rank->to_text()) +
      ": lost: " + why.to_string());
  peers_.erase(at);
  handle(Coordinator::Closed{peer, why});
}

void PublisherCore::on_refused(const std::string& address, const Status& why) {
  const Session session(*this);
  log((address.empty() ? "" : address + ": ") + "refused: " + why.to_string());
  last_refused_ = (address.empty() ? "" : address + ": ") + why.message();
}

void PublisherCore::log(std::string line) {
  if (options_.log) {
    lines_.push_back(std::move(line));
  }
}

PublisherCore::Session::~Session() {
  const auto lines = std::exchange(core_.lines_, {});
  lock_.unlock();
  for (const std::string& line : lines) {
    // Whoever's function it is hears of it some other way (case B02).
    (void)call("log", [&] {
      core_.options_.log(line);
      return Status();
    });
  }
}

}  // namespace changeover::runtime
