// A rank's end of the control channel: dials, proves itself, opens the data connection that goes
// with it, and dials again with back-off when the connection ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <changeover/endpoint.h>
#include <changeover/status.h>

#include "control/channel.h"
#include "control/listener.h"
#include "control/loop.h"
#include "os/lookup.h"

namespace changeover::control {

struct DialerOptions {
  Endpoint endpoint;
  ChannelOptions channel;
  std::chrono::nanoseconds connect = std::chrono::seconds(10);  // One attempt, both connections.
  std::chrono::nanoseconds back_off_min = std::chrono::milliseconds(20);
  std::chrono::nanoseconds back_off_max = std::chrono::seconds(1);
  os::SystemLookup lookup = ::getaddrinfo;  // Of host names; every address is tried in turn.
  uint64_t seed =
      0;  // Of the back-off's jitter: ranks that lost one publisher do not come at once.
};

// Each success is on_open() and on_data() with a new PeerId; a failed attempt is on_refused().
// `loop` must be stopped before the dialer goes; `handler` must outlive the loop's run.
class Dialer {
 public:
  Dialer(DialerOptions options, Loop& loop, ChannelHandler& handler, Entropy entropy);
  ~Dialer();

  // kRefused for an address that leaves this host while there is no token.
  static Status check(const Endpoint& endpoint, const ChannelOptions& options);

  // Any thread; the work is done on the loop thread, in the order of the calls. `peer` is the
  // connection that is meant: by the time the loop comes to it, there may be another one.
  void dial();
  // The peer took us: when this connection ends, the back-off starts anew. Until it is said each
  // wait is longer than the one before, also after connections that were refused once they stood.
  void settled();
  void send(PeerId peer, std::vector<uint8_t> body);
  // After what was sent; no on_closed() follows. `redial`: with back-off, as after a lost one; then
  // a later connection stays. Else whatever there is ends, and nothing is dialled any more.
  void close(PeerId peer, bool redial);
  // REQUIRES: the loop is stopped. Ends what is open at once, as the end of the process would.
  void drop();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // Shared: pending Asio operations hold it until they have run.
};

}  // namespace changeover::control
