// One connection from connect() to the proof, on the dialling side. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <changeover/status.h>

#include "control/address.h"
#include "control/handshake.h"
#include "control/loop_impl.h"

namespace changeover::control {

// Shared: each pending Asio operation holds its outreach until its handler has run.
class Outreach : public std::enable_shared_from_this<Outreach> {
 public:
  using Done = std::function<void(Status, Socket, const SessionId&)>;

  Outreach(asio::io_context& context, ClientHandshake handshake, std::chrono::nanoseconds deadline,
           Done done);

  void start(const Address& address);
  void cancel();  // Done is not called any more.

 private:
  void connected();
  void connect_local(const Address& address);
  void exchange();
  void end(const Status& status);

  Socket socket_;
  asio::steady_timer timer_;
  asio::steady_timer pause_;
  ClientHandshake handshake_;
  std::chrono::nanoseconds deadline_;
  Done done_;
  std::vector<uint8_t> request_;
  std::vector<uint8_t> answer_;
  const char* step_ = "connect";
};

}  // namespace changeover::control
