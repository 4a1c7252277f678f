#include "tests/e2e/proxy.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "control/handshake.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::e2e {

using namespace std::chrono_literals;

namespace {
constexpr size_t kRoleAt = 10;  // in a rank's first message
}  // namespace

Proxy::Proxy(const Endpoint& publisher) : publisher_(publisher), endpoint_(publisher) {
  auto listener = os::listen_tcp("127.0.0.1", 0);
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  listener_ = std::move(listener).take();
  endpoint_.port = *os::local_port(listener_);
  thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy() {
  done_ = true;
  thread_.join();
}

void Proxy::plan(const transport::FaultPlan& fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  ++plans_;
  struck_ = false;
}

void Proxy::run() {
  while (!done_) {
    std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      polls.push_back({pair.rank.get(), POLLIN, 0});
      polls.push_back({pair.stalled ? -1 : pair.publisher.get(), POLLIN, 0});
    }
    if (!os::poll_until(polls, clock_, clock_.now() + 20ms).ok()) {
      return;
    }
    size_t at = 1;
    for (auto pair = pairs_.begin(); pair != pairs_.end(); at += 2) {
      const bool stays = (polls[at].revents == 0 || to_publisher(*pair)) &&
                         (polls[at + 1].revents == 0 || to_rank(*pair));
      pair = stays ? std::next(pair) : pairs_.erase(pair);
    }
    if (polls[0].revents != 0) {
      accept();
    }
  }
}

void Proxy::accept() {
  auto rank = os::accept_connection(listener_, clock_, clock_.now() + 1s);
  auto publisher = os::dial_tcp("127.0.0.1", publisher_.port, clock_, clock_.now() + 1s);
  if (rank.ok() && publisher.ok()) {
    pairs_.emplace_back();
    pairs_.back().rank = std::move(rank).take();
    pairs_.back().publisher = std::move(publisher).take();
  }
}

bool Proxy::to_publisher(Pair& pair) {
  std::array<std::byte, 4096> bytes;
  const ssize_t got = ::read(pair.rank.get(), bytes.data(), bytes.size());
  if (got <= 0) {
    return false;
  }
  if (!std::exchange(pair.known, true)) {
    pair.is_data = static_cast<size_t>(got) > kRoleAt &&
                   bytes[kRoleAt] == static_cast<std::byte>(control::Role::kData);
  }
  return os::send_all(pair.publisher, std::span(bytes).first(static_cast<size_t>(got)), clock_,
                      clock_.now() + 5s, "the publisher")
      .ok();
}

bool Proxy::to_rank(Pair& pair) {
  std::array<std::byte, 4096> bytes;
  const ssize_t got = ::read(pair.publisher.get(), bytes.data(), bytes.size());
  if (got <= 0) {
    return false;
  }
  const auto all = std::span(bytes).first(static_cast<size_t>(got));
  const size_t pass = damage(pair, all);
  return os::send_all(pair.rank, all.first(pass), clock_, clock_.now() + 5s, "the rank").ok() &&
         (pass == all.size() || pair.stalled);
}

// How many of these bytes go on.
size_t Proxy::damage(Pair& pair, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (pair.plan != plans_) {
    pair.plan = plans_;
    pair.seen = 0;
  }
  const uint64_t begin = pair.seen;
  pair.seen += bytes.size();
  if (!pair.is_data || struck_ || fault_.at_byte < begin || fault_.at_byte >= pair.seen) {
    return bytes.size();
  }
  struck_ = true;
  const size_t at = fault_.at_byte - begin;
  if (fault_.kind == transport::FaultKind::kFlipBit) {
    bytes[at] ^= static_cast<std::byte>(1u << fault_.bit);
    return bytes.size();
  }
  pair.stalled = fault_.kind == transport::FaultKind::kStall;
  return at;
}

}  // namespace changeover::e2e
