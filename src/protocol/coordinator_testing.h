// A coordinator with scripted ranks: what a test sends, and what was sent back.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/coordinator.h"

namespace changeover::protocol::testing {

inline constexpr VersionStamp kV2{0, 2};

inline Incarnation incarnation(uint8_t number) {
  Incarnation value;
  value.bytes.fill(number);
  return value;
}
inline Digest digest(uint8_t number) {
  Digest value;
  value.bytes.fill(number);
  return value;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : coordinator_({"job", incarnation(200), {}}) {}

  Hello hello(const std::string& engine, int32_t rank, int32_t size = 2) {
    Hello hello;
    hello.job = "job";
    hello.rank = {engine, rank};
    hello.engine_size = size;
    hello.incarnation = incarnation(static_cast<uint8_t>(10 * (engine[0] - 'a') + rank + 1));
    hello.version = VersionStamp{0, 1};
    hello.digest = digest(1);
    hello.gate_open = true;
    return hello;
  }
  void handle(const Coordinator::Event& event) {
    coordinator_.handle(event, now_);
    while (auto action = coordinator_.poll()) {
      actions_.push_back(std::move(*action));
    }
  }
  ConnectionId connect(const Hello& hello) {
    const ConnectionId id = ++connections_;
    ranks_[id] = hello;
    handle(Coordinator::Received{id, hello});
    return id;
  }
  void start(VersionStamp version = kV2, std::optional<Digest> known = {}) {
    UpdateRequest request;
    request.version = version;
    request.digest = known;
    actions_.clear();
    handle(Coordinator::StartUpdate{request});
  }
  void reply(ConnectionId id, BeginKind kind = BeginKind::kReady, const Status& why = {}) {
    handle(Coordinator::Received{
        id, BeginReply{coordinator_.update(), ranks_[id].incarnation, kind, why}});
  }
  void vote(ConnectionId id, bool ready = true, const Status& error = {}) {
    Vote vote;
    vote.id = coordinator_.update();
    vote.ready = ready;
    vote.began = true;
    vote.version = kV2;
    vote.digest = digest(2);
    vote.incarnation = ranks_[id].incarnation;
    vote.error = error;
    handle(Coordinator::Received{id, vote});
  }
  void finished(ConnectionId id, bool committed = true) {
    Finished finished;
    finished.id = coordinator_.update();
    finished.incarnation = ranks_[id].incarnation;
    finished.report.rank = ranks_[id].rank;
    finished.report.outcome = committed ? RankOutcome::kCommitted : RankOutcome::kRestored;
    finished.report.version = committed ? kV2 : *ranks_[id].version;
    finished.report.digest = committed ? digest(2) : *ranks_[id].digest;
    finished.report.error = committed ? Status() : Status(Code::kAborted, "by decision");
    handle(Coordinator::Received{id, finished});
  }
  void stream_ended() { handle(Coordinator::StreamEnded{{}, digest(2), 100, 3}); }
  void wait(std::chrono::nanoseconds duration) {
    now_ = now_ + duration;
    handle(Coordinator::Tick{});
  }

  // Messages of a kind that were sent to a rank since the last start().
  template <typename T>
  std::vector<T> sent(ConnectionId id) const {
    std::vector<T> found;
    for (const auto& action : actions_) {
      const auto* send = std::get_if<Coordinator::Send>(&action);
      if (send != nullptr && send->connection == id && std::get_if<T>(&send->message)) {
        found.push_back(std::get<T>(send->message));
      }
    }
    return found;
  }
  template <typename T>
  std::vector<T> actions() const {
    std::vector<T> found;
    for (const auto& action : actions_) {
      if (const T* one = std::get_if<T>(&action)) {
        found.push_back(*one);
      }
    }
    return found;
  }
  // Closed, for that reason, after all that was sent to it.
  void expect_let_go(ConnectionId id, const std::string& why) const {
    bool closed = false;
    for (const auto& action : actions_) {
      const auto* send = std::get_if<Coordinator::Send>(&action);
      EXPECT_FALSE(closed && send != nullptr && send->connection == id);
      const auto* close = std::get_if<Coordinator::CloseConnection>(&action);
      if (close != nullptr && close->connection == id) {
        closed = true;
        EXPECT_NE(close->why.message().find(why), std::string::npos) << close->why.message();
      }
    }
    EXPECT_TRUE(closed) << id;
  }
  UpdateReport report() const {
    const auto done = actions<Coordinator::UpdateDone>();
    return done.empty() ? UpdateReport() : done.back().report;
  }
  bool is_done() const { return !actions<Coordinator::UpdateDone>().empty(); }

  Coordinator coordinator_;
  Instant now_;
  ConnectionId connections_ = 0;
  std::map<ConnectionId, Hello> ranks_;
  std::vector<Coordinator::Action> actions_;
};

}  // namespace changeover::protocol::testing
