// The control channel: authenticated connections that carry frames, seen by one handler.
//
// A frame is a length (u32, little-endian) and that many bytes; an empty frame is a heartbeat and
// is not shown. What a frame means is codec.h's. Every length is checked before memory is taken.
// One loop thread calls the handler; nothing here waits for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include <changeover/status.h>

#include "os/fd.h"

namespace changeover::control {

// A control connection of this process; never used twice.
using PeerId = uint64_t;

struct ChannelOptions {
  std::string job = "default";
  std::string token;
  size_t frame_bytes_max = 1u << 20;
  size_t send_queue_bytes_max = 8u << 20;  // A peer that does not read is let go.
  // Unproved connections; beyond it the oldest of the process (tcp: host) that has most is closed.
  size_t half_open_max = 64;
  size_t peers_max = 4096;
  // To the proof, and from there to the peer's first message: a hello here, a welcome there.
  std::chrono::nanoseconds handshake = std::chrono::seconds(10);
  std::chrono::nanoseconds heartbeat = std::chrono::seconds(1);
  std::chrono::nanoseconds silence = std::chrono::seconds(10);  // Nothing came for that long.

  // Heartbeats often enough that some may be late within `limit`.
  void set_silence(std::chrono::nanoseconds limit) {
    silence = limit;
    heartbeat = std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), limit / 4);
  }
};

// Called on the loop thread, one call at a time. Must not block.
class ChannelHandler {
 public:
  virtual ~ChannelHandler() = default;
  // A control connection is proved. `address` is for messages.
  virtual void on_open(PeerId peer, const std::string& address) = 0;
  // The peer's data connection is proved; bytes after the handshake are untouched.
  // Non-blocking, as all of ours.
  virtual void on_data(PeerId peer, os::Fd fd) = 0;
  virtual void on_frame(PeerId peer, std::span<const uint8_t> body) = 0;
  // The last call for this peer. Never follows a close() of ours.
  virtual void on_closed(PeerId peer, const Status& why) = 0;
  // A connection ended before it was proved: who, and which rule it broke.
  virtual void on_refused(const std::string& address, const Status& why) = 0;
};

}  // namespace changeover::control
