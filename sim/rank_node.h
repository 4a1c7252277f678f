// A simulated rank: one process after another, each with the real machine, transaction, fence and
// receiver over a little memory of its own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/rank_machine.h"
#include "protocol/stream_receiver.h"
#include "protocol/transaction_sink.h"
#include "sim/network.h"
#include "sim/world.h"

namespace changeover::sim {

class RankNode {
 public:
  // `dial` gives a link to the publisher, or none while nobody listens.
  RankNode(World& world, RankName name, Mode mode, std::function<LinkPtr()> dial)
      : world_(world), name_(std::move(name)), mode_(mode), dial_(std::move(dial)) {}

  const RankName& name() const { return name_; }
  bool alive() const { return process_ != nullptr; }
  uint64_t life() const { return life_; }

  void start();
  void crash();
  void stop();  // frozen, as by SIGSTOP: what comes waits
  void resume();
  void cut_link(const Status& why);
  // The data road alone fails.
  void cut_data(const Status& why);
  const LinkPtr& link() const { return process_->link; }

  Mode mode() const { return mode_; }

  // A step: the version it may run on, and the half that holds it, or none. `named`: that version
  // or none. Each success needs leave_step() with that life.
  std::optional<update::FenceState::Pin> enter_step(std::optional<VersionStamp> named);
  void leave_step(uint64_t life, uint32_t half);
  std::vector<std::byte> memory(uint32_t half) const {
    return (half == 0 ? process_->memory : process_->second).bytes();
  }
  std::optional<VersionStamp> version() const { return process_->transaction->version(); }
  // For the trace: "journal, v3, prepared, fence up".
  std::string describe() const;

 private:
  struct Data {
    uint64_t stream = 0;
    std::vector<std::byte> bytes;
  };
  class Raiser final : public update::FenceRaiser {
   public:
    Raiser(update::FenceState& fence, Bug bug) : fence_(fence), bug_(bug) {}
    Status raise_and_drain(update::FenceReason reason, VersionStamp about) override;
    Status reclaim(uint32_t half) override;

   private:
    update::FenceState& fence_;
    Bug bug_;
  };
  struct Process {
    Process(World& world, const RankNode& node);
    update::testing::Memory memory;
    update::testing::Memory second;
    update::FenceState fence;
    Raiser raiser;
    std::vector<std::byte> journal;
    std::unique_ptr<update::Transaction> transaction;
    std::unique_ptr<protocol::RankMachine> machine;
    std::unique_ptr<protocol::TransactionSink> sink;
    std::optional<protocol::StreamReceiver> receiver;
    uint64_t stream = 0;
    Instant stall_deadline = Instant::never();
    std::deque<Data> data;  // waits for a step to end
    LinkPtr link;
    Instant armed = Instant::never();
  };

  // Runs `what` for this process alone, and not while it is stopped; then pumps.
  std::function<void()> guarded(std::function<void()> what);
  void connect();
  bool is_link(uint64_t id) const { return process_->link && process_->link->id() == id; }
  void handle(const protocol::RankMachine::Event& event);
  void pump();
  void act(const protocol::RankMachine::Action& action);
  void send(protocol::Message message);
  void on_message(protocol::Message message);
  void on_data();
  void feed(const Data& data);
  void end_stream_if_done();
  void cross_boundary();
  void arm();

  World& world_;
  const RankName name_;
  const Mode mode_;
  const std::function<LinkPtr()> dial_;
  std::unique_ptr<Process> process_;
  uint64_t life_ = 0;
  bool stopped_ = false;
  std::vector<std::function<void()>> backlog_;
  std::optional<Digest> told_;  // for Bug::kDigestIgnored
};

}  // namespace changeover::sim
