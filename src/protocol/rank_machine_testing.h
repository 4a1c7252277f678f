// A rank's side over a real transaction of the toy model: what a test feeds it, and what it said.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/rank_machine.h"
#include "protocol/stream_testing.h"
#include "protocol/transaction_sink.h"

namespace changeover::protocol::testing {

class RankMachineTest : public ::testing::Test {
 protected:
  explicit RankMachineTest(Mode mode = Mode::kJournal)
      : rank_(mode),
        sink_(*rank_.transaction),
        machine_(options(mode), *rank_.transaction, rank_.fence) {
    connect();
  }
  RankMachineOptions options(Mode mode) {
    RankMachineOptions options;
    options.hello.rank = {"a", 0};
    options.hello.incarnation = incarnation(1);
    options.hello.mode = mode;
    options.hello.payload_bytes_max = 4096;
    options.hello.metadata_bytes_max = 4096;
    options.engine_picks_boundary = true;
    options.cache_policy = "flush";
    return options;
  }

  static Incarnation incarnation(uint8_t number) {
    Incarnation value;
    value.bytes.fill(number);
    return value;
  }
  void handle(const RankMachine::Event& event) {
    machine_.handle(event, now_);
    while (auto action = machine_.poll()) {
      obey(*action);
      actions_.push_back(std::move(*action));
    }
  }
  // Each takes as long as the test says.
  void obey(const RankMachine::Action& action) {
    if (const auto* check = std::get_if<RankMachine::Check>(&action)) {
      const Status status = rank_.transaction->check(check->source);
      now_ = now_ + check_takes_;
      machine_.handle(RankMachine::Checked{status}, now_);
    } else if (const auto* prepare = std::get_if<RankMachine::Prepare>(&action)) {
      const bool was_up = rank_.fence.up();
      const Status status = rank_.transaction->prepare(prepare->source);
      if (!was_up && rank_.fence.up()) {
        machine_.handle(RankMachine::FenceRose{now_}, now_);
      }
      machine_.handle(RankMachine::Prepared{status}, now_);
    } else if (std::get_if<RankMachine::ChangeOver>(&action)) {
      rank_.transaction->finish();
      ++commits_;
      EXPECT_FALSE(rank_.fence.gate_open()) << "T12: before steps are let in";
      now_ = now_ + hook_takes_;
      machine_.handle(RankMachine::ChangedOver{"flushed 3 blocks"}, now_);
    }
  }
  void receive(Message message) { handle(RankMachine::Received{std::move(message)}); }
  void connect(uint8_t coordinator = 9) {
    handle(RankMachine::Connected{});
    receive(Welcome{incarnation(coordinator)});
  }
  void disconnect() { handle(RankMachine::Disconnected{{Code::kUnavailable, "reset by peer"}}); }
  void wait(std::chrono::nanoseconds duration) {
    now_ = now_ + duration;
    handle(RankMachine::Tick{});
  }

  UpdateId id(uint64_t counter, uint8_t coordinator = 9) {
    return {incarnation(coordinator), counter};
  }
  void begin(const UpdateId& id, int64_t version) {
    Begin begin;
    begin.id = id;
    begin.version = {0, version};
    begin.payload_bytes_max = begin.metadata_bytes_max = 2048;
    begin.stream_id = id.counter;
    version_ = version;
    receive(begin);
  }
  std::vector<update::testing::Sent> tensors(int64_t version) {
    return update::testing::all_tensors(
        rank_.plan, update::testing::toy_weights(rank_.plan, static_cast<uint64_t>(version)));
  }
  // The first `bytes` of the stream reach the transaction, and its end the machine.
  void stream(size_t bytes = SIZE_MAX, const Status& road = {}) {
    const Bytes all = encode_stream(tensors(version_), 64, version_);
    StreamReceiverOptions receiver_options;
    receiver_options.version = version_;
    receiver_options.payload_bytes_max = receiver_options.metadata_bytes_max = 4096;
    StreamReceiver receiver(receiver_options, sink_);
    handle(RankMachine::StreamStarted{});
    feed(receiver, std::span(all).first(std::min(bytes, all.size())), 50);
    if (!road.ok()) {
      receiver.on_road_failure(road);
    }
    if (receiver.done()) {
      handle(RankMachine::StreamEnded{receiver.result(), receiver.out_of_step(),
                                      receiver.payload_bytes()});
    }
  }
  void digest(const UpdateId& id) {
    receive(SourceDigest{id, update::testing::version_digest(tensors(version_))});
  }
  void prepare(const UpdateId& update, int64_t version) {
    begin(update, version);
    stream();
    digest(update);
  }
  void commit(const UpdateId& update, int64_t version) {
    prepare(update, version);
    receive(Decision{update, true, {}});
    receive(Release{{0, version}});
  }
  std::vector<std::byte> cold(int64_t version) {
    return rank_.cold(update::testing::toy_weights(rank_.plan, static_cast<uint64_t>(version)));
  }

  template <typename T>
  std::vector<T> sent() const {
    std::vector<T> found;
    for (const auto& action : actions_) {
      const auto* send = std::get_if<RankMachine::Send>(&action);
      if (send != nullptr && std::get_if<T>(&send->message)) {
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

  update::testing::ToyRank rank_;
  TransactionSink sink_;
  int commits_ = 0;
  std::chrono::nanoseconds check_takes_{0};
  std::chrono::nanoseconds hook_takes_{0};
  int64_t version_ = 0;
  Instant now_{1'000'000'000};
  std::vector<RankMachine::Action> actions_;
  RankMachine machine_;
};

}  // namespace changeover::protocol::testing
