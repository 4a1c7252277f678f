// The publisher's end of the control channel: takes connections, proves them, sorts them by role.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include <changeover/endpoint.h>
#include <changeover/status.h>

#include "control/channel.h"
#include "control/handshake.h"
#include "control/loop.h"

namespace changeover::control {

// Random bytes, from outside.
using Entropy = std::function<void(std::span<uint8_t>)>;

class Listener {
 public:
  // Binds and listens, on the address given and no other; connections are taken once the loop
  // runs. kUnavailable "address in use" where another process listens there; kRefused for an
  // address that leaves this host while there is no token. `loop` must be stopped before the
  // listener goes; `handler` must outlive the loop's run.
  static Result<std::unique_ptr<Listener>> open(const Endpoint& endpoint,
                                                const ChannelOptions& options, Loop& loop,
                                                ChannelHandler& handler, Entropy entropy);
  ~Listener();

  const Endpoint& endpoint() const;  // With the real port.

  // Any thread; the work is done on the loop thread, in the order of the calls.
  void send(PeerId peer, std::vector<uint8_t> body);
  void close(PeerId peer);  // After what was sent to it; no on_closed() follows.
  // Listens no more and closes every peer. `done` is called on the loop thread once each has read
  // what was sent to it, or has not within a heartbeat.
  void close_all(std::function<void()> done);

 private:
  struct Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // Shared: pending Asio operations hold it until they have run.
};

// The abstract unix socket of shm:NAME: user and job are part of it, so that two jobs on one host
// never meet (case N10). The first byte is NUL.
std::string shm_socket_name(const std::string& job, const std::string& name);

}  // namespace changeover::control
