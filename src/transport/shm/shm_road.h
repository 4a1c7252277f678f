// The shm road: one ring of anonymous shared memory for all ranks of a host, so that the bytes
// cross it once for all of them.
//
// The publisher makes the ring and one control page per reader and hands out their descriptors over
// the rank's unix socket; nothing has a name, so nothing can be left behind (rule S4). The ring is
// read-only for readers; a reader's control page (its credits) is written by that reader alone.
// The socket stays open: its hang-up tells each side at once that the other is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include <poll.h>

#include "os/clock.h"
#include "os/fd.h"
#include "os/mapping.h"
#include "os/poll.h"
#include "transport/send_peers.h"
#include "transport/shm/shm_layout.h"
#include "transport/transport.h"

namespace changeover::transport {

struct ShmSendOptions {
  uint32_t slots = 8;                // 2 .. kShmSlotsMax
  uint64_t slot_bytes = 1ull << 20;  // a multiple of 4,096
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(10);
};

class ShmSendRoad final : public SendRoad {
 public:
  // Takes the ring's memory, once; kExhausted with the numbers when there is no room.
  static Result<std::unique_ptr<ShmSendRoad>> create(ShmSendOptions options,
                                                     const os::Clock& clock);

  // Hands the ring to the rank behind this connected, authenticated unix socket, on which
  // ShmReceiveRoad::create() runs; `name` is what errors call it. A peer attached before under this
  // index is replaced; indices go to kShmReadersMax - 1.
  Status attach(uint32_t peer, const std::string& name, os::Fd socket, Instant deadline);

  const Capabilities& capabilities() const override { return capabilities_; }
  Status open_stream(std::span<const uint32_t> peers, uint64_t stream_id) override;
  Result<std::span<std::byte>> lend(Part part, uint64_t bytes, Instant deadline) override;
  Status commit(uint64_t bytes) override;
  Status send(Part part, std::span<const std::byte> bytes, Instant deadline) override;
  Status flush(Instant deadline) override;
  void drop(uint32_t peer, const Status& why) override;
  std::vector<PeerFailure> take_failures() override;

 private:
  struct Peer : SendPeer {
    explicit Peer(os::Doorbell reader_bell) : bell(std::move(reader_bell)) {}
    os::Mapping control;
    os::Doorbell bell;
    uint64_t start = 0;     // the first slot of the stream
    uint64_t consumed = 0;  // slots before this one are free of it
    uint64_t rung = 0;      // the wait it was last rung for
    Instant progress;       // when `consumed` last moved, or we began to wait for it
  };

  ShmSendRoad(ShmSendOptions options, const os::Clock& clock, os::Fd ring_fd, os::Mapping ring,
              os::Doorbell credit_bell);
  Status open_slot(Instant deadline);
  void publish_slot();
  bool holds_back(const Peer& peer) const;
  bool ring_is_full();
  void read_credits();
  Status wait_for_room(Instant deadline);
  Status wait_once(Instant deadline);
  void look_at_sockets(int ready);
  void ring_if_waiting(Peer& peer);
  void fail(Peer& peer, Status why);
  std::string arrived_text(const Peer& peer) const;

  const Capabilities capabilities_;
  const ShmSendOptions options_;
  const os::Clock& clock_;
  os::Fd ring_fd_;
  os::Mapping ring_;
  const ShmRing view_;
  os::Doorbell credit_bell_;
  SendPeers<Peer> peers_;
  std::vector<pollfd> polls_;  // credit bell and each peer; kept so that no wait allocates

  uint64_t generation_ = 0;  // of the last attached member
  uint64_t stream_bytes_ = 0;
  uint64_t count_ = 0;       // slots published since the road was made
  bool slot_open_ = false;   // slot count_ is being filled
  uint64_t slot_bytes_ = 0;  // bytes in it
  uint64_t lent_bytes_ = 0;
  std::vector<uint64_t> stream_bytes_at_;  // after each of the last slots, for messages
};

class ShmReceiveRoad final : public ReceiveRoad {
 public:
  // Receives the ring over the socket on which the publisher attach()es this rank. kCorrupt when
  // what came is no ring.
  static Result<std::unique_ptr<ShmReceiveRoad>> create(os::Fd socket, std::string publisher,
                                                        const os::Clock& clock, Instant deadline);

  const Capabilities& capabilities() const override { return capabilities_; }
  Status open_stream(uint64_t stream_id) override;
  Result<Run> receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                      Instant deadline) override;
  Status release(const Run& run) override;
  void wake() override;
  void close() override;

 private:
  struct Seat {
    uint64_t index;
    uint64_t generation;
  };
  ShmReceiveRoad(os::Fd socket, std::string publisher, const os::Clock& clock, os::Mapping ring,
                 const ShmRing& view, os::Mapping control, const Seat& seat, os::Doorbell bell,
                 os::Doorbell credit_bell, os::Doorbell wake_bell);
  // The current slot holds bytes for us: true; not yet: false; or why it never will.
  Result<bool> look();
  Status membership() const;
  Status wait(Instant start, Instant deadline, uint64_t bytes_max);
  void credit_slot();
  Status fail(Status why);

  const Capabilities capabilities_;
  const os::Clock& clock_;
  os::Fd socket_;
  const std::string publisher_;
  os::Mapping ring_;
  os::Mapping control_mapping_;
  const ShmRing view_;
  ShmControl& control_;
  os::Doorbell bell_, credit_bell_, wake_bell_;
  std::atomic<bool> woken_{false};

  const uint32_t index_;
  const uint64_t generation_;
  uint64_t stream_id_ = 0;
  bool joined_ = false;  // `count_` is a slot of this stream
  uint64_t count_ = 0;   // the slot being read
  uint64_t slot_offset_ = 0;
  uint64_t slot_bytes_ = 0;  // of the slot being read, 0 before it was looked at
  uint64_t run_bytes_ = 0;   // of the run that is out
  uint64_t waits_ = 0;
  uint64_t stream_bytes_ = 0;
  bool publisher_gone_ = false;
  Status failure_;
};

}  // namespace changeover::transport
