// The tcp road: one connection per rank, bytes written straight from the caller's memory.
//
// On the connection the stream travels in chunks {magic, stream id, bytes} + bytes, so that what is
// left of an aborted stream is skipped by its length and never reaches the next one.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include <poll.h>

#include "os/clock.h"
#include "os/fd.h"
#include "os/poll.h"
#include "transport/send_peers.h"
#include "transport/transport.h"

struct iovec;

namespace changeover::transport {

inline constexpr uint64_t kTcpChunkMagic = 0x314b4e5548434f43;  // "COCHUNK1"
inline constexpr uint64_t kTcpChunkHeaderBytes = 24;
inline constexpr uint64_t kTcpBufferBytes = 1 << 20;

struct TcpSendOptions {
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(10);
};

class TcpSendRoad final : public SendRoad {
 public:
  TcpSendRoad(TcpSendOptions options, const os::Clock& clock);

  // A connected, authenticated socket on which the rank reads the data next; `name` is what errors
  // call it. A peer attached before under this index is replaced.
  Status attach(uint32_t peer, const std::string& name, os::Fd socket);

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
    bool blocked = false;
    uint64_t cursor = 0;        // bytes of the current batch it took
    uint64_t stream_bytes = 0;  // bytes of the stream before the current batch
    Instant progress;           // when it last took something, or the batch began
  };

  Status write_batch(std::span<const std::byte> bytes, Instant deadline);
  Status write_to_all(uint64_t total, Instant deadline);
  void write_some(Peer& peer, uint64_t total);
  Status wait_for_blocked(uint64_t total, Instant deadline);
  void look_for_hang_ups();
  std::string arrived_text(const Peer& peer) const;

  const Capabilities capabilities_;
  const TcpSendOptions options_;
  const os::Clock& clock_;
  SendPeers<Peer> peers_;
  std::vector<pollfd> polls_;  // as many as peers_; kept so that no wait allocates

  uint64_t stream_bytes_ = 0;            // sent to every live peer of the stream
  std::unique_ptr<std::byte[]> staged_;  // small parts and lent memory, together one batch
  uint64_t staged_bytes_ = 0;
  uint64_t lent_bytes_ = 0;
  std::byte chunk_header_[kTcpChunkHeaderBytes] = {};
  std::span<const std::byte> batch_[3];  // chunk header, staged, the caller's
};

class TcpReceiveRoad final : public ReceiveRoad {
 public:
  // The rank's end of the connection, positioned where the publisher's data begins. `publisher`
  // names the other side in errors.
  static Result<std::unique_ptr<TcpReceiveRoad>> create(os::Fd socket, std::string publisher,
                                                        const os::Clock& clock);

  const Capabilities& capabilities() const override { return capabilities_; }
  Status open_stream(uint64_t stream_id) override;
  Result<Run> receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                      Instant deadline) override;
  Status release(const Run& run) override;
  void wake() override;
  void close() override;

 private:
  TcpReceiveRoad(os::Fd socket, std::string publisher, os::Doorbell bell, const os::Clock& clock);
  Status take_chunk_headers();
  // What read() did: more bytes, nothing yet, or the end (failure_ says why).
  enum class Got : uint8_t { kBytes, kNothing, kEnd };
  Got fill(uint64_t bytes_max);
  Got read_into(std::span<std::byte> into, uint64_t& got);
  Got ended(ssize_t result);
  Status wait(Instant start, Instant deadline, uint64_t bytes_max);
  Status fail(Status why);

  const Capabilities capabilities_;
  const os::Clock& clock_;
  os::Fd socket_;
  const std::string publisher_;
  os::Doorbell bell_;
  std::atomic<bool> woken_{false};

  std::unique_ptr<std::byte[]> buffer_;
  uint64_t begin_ = 0, end_ = 0;  // what was read ahead
  uint64_t stream_id_ = 0;
  uint64_t chunk_left_ = 0;    // of a chunk of this stream
  uint64_t skip_left_ = 0;     // of a chunk of an earlier one
  uint64_t stream_bytes_ = 0;  // given out
  bool connected_ = true;
  Status failure_;  // of the stream
};

}  // namespace changeover::transport
