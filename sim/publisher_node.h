// A simulated publisher: a trainer whose versions outlive its processes, each process with the real
// coordinator and stream sender.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/coordinator.h"
#include "sim/network.h"
#include "sim/world.h"

namespace changeover::sim {

class PublisherNode {
 public:
  // `on_start` hears of every update that begins.
  PublisherNode(World& world, std::function<void()> on_start)
      : world_(world), on_start_(std::move(on_start)) {}

  bool alive() const { return process_ != nullptr; }
  void start();
  void crash();
  LinkPtr accept();

  bool busy() const { return alive() && process_->coordinator.busy(); }
  uint32_t complete_ranks() const { return alive() ? process_->coordinator.complete_ranks() : 0; }
  // Publishes this version now. REQUIRES: alive(), !busy().
  void publish(int64_t version);
  int64_t next_version();
  int64_t trained() const { return trained_; }  // the newest version there is
  const std::optional<UpdateReport>& last_report() const { return last_report_; }

  // The next chunk to this connection is damaged, or lost.
  void damage(uint64_t link, bool lose) { damage_[link] = lose; }
  void forget_damage() { damage_.clear(); }
  void on_data_lost(uint64_t link, const Status& why);

 private:
  struct Streaming {
    uint64_t stream = 0;
    std::vector<protocol::ConnectionId> targets;
    std::vector<std::byte> bytes;
    size_t at = 0;
    int64_t version = 0;
    uint64_t life = 0;
  };
  struct Process {
    explicit Process(protocol::CoordinatorOptions options) : coordinator(std::move(options)) {}
    protocol::Coordinator coordinator;
    std::map<protocol::ConnectionId, LinkPtr> links;
    std::map<protocol::ConnectionId, protocol::Hello> hellos;
    std::optional<Streaming> streaming;
    Instant armed = Instant::never();
  };

  std::function<void()> guarded(std::function<void()> what);
  void handle(const protocol::Coordinator::Event& event);
  void pump();
  void act(const protocol::Coordinator::Action& action);
  void send(const protocol::Coordinator::Send& send);
  void on_message(protocol::ConnectionId connection, const protocol::Message& message);
  void stream_on();
  void check_on(const UpdateId& update, int reads);
  void arm();

  World& world_;
  const std::function<void()> on_start_;
  std::unique_ptr<Process> process_;
  uint64_t life_ = 0;
  uint64_t links_ = 0;
  int64_t trained_ = 0;
  int64_t publishing_ = 0;
  bool last_ok_ = true;
  bool greeting_ = false;  // a hello is being answered
  std::map<uint64_t, bool> damage_;
  std::optional<UpdateReport> last_report_;
};

}  // namespace changeover::sim
