// A road: how the parts of a stream get from one publisher to many ranks, in order.
//
// A stream is a sequence of parts: header (32 bytes), metadata, payload, header, ... Every part's
// size is known before its first byte, so a part of size 0 is neither sent nor asked for. A road
// knows nothing of what is in them. One sender object serves one publisher, one receiver object one
// rank; each is used by one thread at a time. Stream ids start at 1 and grow.
//
// Failure is per peer where the road can drop one (tcp, shm): the sender goes on for the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>
#include <changeover/types.h>

#include "base/instant.h"

namespace changeover::transport {

enum class MemoryKind : uint8_t { kHost };  // device kinds come with the GPU roads

enum class Part : uint8_t { kHeader, kMetadata, kPayload };

struct Capabilities {
  std::string road;            // "tcp", "shm", "file"
  bool drops_one_peer = true;  // false: a failed peer ends the group (rule R3)
  bool lends_memory = false;   // lend() gives memory that the readers see: prefer it to send()
  uint64_t run_bytes_max = 0;  // no run is larger; 0 = a part is one run
};

struct PeerFailure {
  uint32_t peer = 0;  // the index given to open_stream()
  Status status;      // for whom it waited, how long, what had arrived (rule R7)
};

class SendRoad {
 public:
  virtual ~SendRoad() = default;
  virtual const Capabilities& capabilities() const = 0;

  // Starts a stream to these peers (indices of peers attached before; one that is gone by now is
  // reported by take_failures(), kUnavailable when all are). Earlier streams' leftovers are gone:
  // nothing written before reaches a peer of this stream.
  virtual Status open_stream(std::span<const uint32_t> peers, uint64_t stream_id) = 0;

  // Up to `bytes` (at least 1) of memory for the next bytes of this part, to be filled and given
  // back by commit(). Waits for room; peers that hold it back longer than the stall limit are
  // dropped and reported. kUnavailable when no peer is left. kDeadline names (and drops) those that
  // still held it back at `deadline`. The same holds for send() and flush().
  virtual Result<std::span<std::byte>> lend(Part part, uint64_t bytes, Instant deadline) = 0;
  virtual Status commit(uint64_t bytes) = 0;

  // The next bytes from the caller's own memory, which is the caller's again on return.
  virtual Status send(Part part, std::span<const std::byte> bytes, Instant deadline) = 0;

  // What was committed or sent so far becomes visible to the peers without waiting for more.
  virtual Status flush(Instant deadline) = 0;

  // Leaves this peer out from now on (told by the control channel that it is dead). Idempotent.
  virtual void drop(uint32_t peer, const Status& why) = 0;
  // Peers lost since the last call, each once, those dropped by drop() included. open_stream()
  // forgets what was not taken of an earlier stream.
  virtual std::vector<PeerFailure> take_failures() = 0;
};

// In-order bytes of the current part.
struct Run {
  MemoryKind kind = MemoryKind::kHost;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t token = 0;  // the road's own
};

class ReceiveRoad {
 public:
  virtual ~ReceiveRoad() = default;
  virtual const Capabilities& capabilities() const = 0;

  // Takes part in the stream with this id. Bytes of earlier streams are skipped or refused.
  virtual Status open_stream(uint64_t stream_id) = 0;

  // Waits for the next run of the part, 1 .. bytes_max bytes. Where `into` is not empty the road
  // may write the bytes there itself (then Run::data == into.data()), at most into.size() of them.
  // One run is out at a time: release() it before the next call. kTryLater means that wake() was
  // called: look at what else happened and call again. Every other failure is final for the stream
  // (out of step, rule R3).
  virtual Result<Run> receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                              Instant deadline) = 0;

  // The run's memory is the road's again. On a ring, the slot's sequence and this reader's
  // membership are read again first; a change is kUnavailable, and what was copied must not count.
  virtual Status release(const Run& run) = 0;

  // Any thread: makes a receive() in progress (or the next one) return kTryLater.
  virtual void wake() = 0;
  // Leaves the stream; the peer learns of it at once. Idempotent.
  virtual void close() = 0;
};

}  // namespace changeover::transport
