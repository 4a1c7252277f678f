// Turns the crank of one rank: channel events and road bytes in, machine and transaction in
// between, messages out. One thread at a time drives it; status() from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <changeover/subscriber.h>

#include "control/dialer.h"
#include "control/loop.h"
#include "os/clock.h"
#include "os/mapping.h"
#include "protocol/rank_machine.h"
#include "protocol/stream_receiver.h"
#include "protocol/transaction_sink.h"
#include "runtime/inbox.h"
#include "runtime/waiting_fence.h"
#include "transport/transport.h"
#include "update/transaction.h"

namespace changeover::runtime {

class RankDriver {
 public:
  // What driving needs and the subscriber keeps; all outlive the driver.
  struct Parts {
    const SubscriberOptions& options;
    const LoadPlan& plan;
    const os::Clock& clock;
    WaitingFence& fence;
    update::Transaction& transaction;
    std::function<Status()> may_begin;
  };
  RankDriver(const Parts& parts, const Incarnation& incarnation);
  ~RankDriver();

  // Starts the loop thread and dials.
  void connect();
  // Dials again if the publisher refused this rank for good before.
  void reconnect();
  // The same, in a wait() and turn() to come.
  void reconnect_at(Instant when) { reconnect_at_ = when; }
  // Waits until there is something to do, or `until` (an update in progress has deadlines of its
  // own). Touches neither machine nor transaction.
  void wait(Instant until);
  // Does it. A report when an update ended here; an error when the publisher refused this rank.
  Result<std::optional<RankReport>> turn();
  // Any thread: the update that waits for the engine's boundary, and the boundary.
  struct Staged {
    UpdateId id;
    VersionStamp version;
  };
  std::optional<Staged> staged() const;
  void at_boundary(const UpdateId& id);
  // Any thread: until the last boundary told was acted on. kDeadline.
  Status wait_for_boundary(Instant until);
  // Any thread: turn() is busy with a stream and may be for long.
  bool streaming() const { return streaming_; }
  // No update is in progress.
  bool idle() const { return machine_.phase() == protocol::RankMachine::Phase::kIdle; }
  // Any thread: turn() returns soon, now and ever after.
  void interrupt() { inbox_.stop(); }
  bool interrupted() const { return inbox_.stopped(); }
  // The thread that drives: why the update in progress needs no byte any more, as far as the
  // events say that are not handled yet.
  Status given_up() const;
  // As if the rank had died, but politely. Ends the loop thread.
  void stop();

  RankStatus status() const;
  std::optional<RankReport> last_report() const;
  // The plan is a new one: a wait() and turn() to come says hello again with it.
  void replan() {
    plan_is_new_ = true;
    inbox_.wake();
  }
  // After the transaction was changed from outside (a reload): tells the publisher and status().
  // Not during a turn().
  void reloaded();

 private:
  void handle(ChannelEvent event);
  void feed(const protocol::RankMachine::Event& event);
  void act(protocol::RankMachine::Action action);
  void open_stream(const protocol::RankMachine::OpenStream& open);
  void pump();
  void take_run(const protocol::StreamReceiver::Want& want);
  void end_stream();
  void say_hello_again();
  void drop_road();
  void redial(const Status& why);
  void show_progress();
  void note_fence();
  void publish_status();
  void cross_boundary();
  void log(const std::string& line) const;

  Parts parts_;
  Incarnation incarnation_;
  uint64_t payload_bytes_max_;  // As the hello said.
  protocol::RankMachine machine_;
  Inbox inbox_;
  control::Loop loop_;
  control::Dialer dialer_;

  control::PeerId peer_ = 0;  // Of the connection in use; events of others are stale.
  os::Fd data_;               // The data connection until the road is made of it.
  std::unique_ptr<transport::ReceiveRoad> road_;
  protocol::TransactionSink sink_;
  std::optional<protocol::StreamReceiver> receiver_;  // While there is a stream to receive.
  std::atomic<bool> streaming_{false};
  bool started_ = false;      // The stream's first byte is here.
  bool fence_noted_ = false;  // The machine knows since when it is up.
  bool drained_ = false;      // The machine left the stream: received, but of no interest.
  // The last byte's time, or when the stream was joined or left: messages that come meanwhile do
  // not give a road that stands still more time.
  Instant quiet_since_;
  std::optional<RankReport> ended_;
  Status refused_;  // The publisher refused this rank; told once.
  std::atomic<bool> plan_is_new_{false};
  bool dialing_ = true;  // False once it was refused for good.
  Instant reconnect_at_ = Instant::never();

  mutable std::mutex status_mutex_;
  RankStatus status_;
  std::optional<RankReport> last_report_;
  std::optional<Staged> staged_;
  std::optional<UpdateId> boundary_;  // Told, and not acted on yet.
  std::condition_variable crossed_;
  Status last_error_;
};

}  // namespace changeover::runtime
