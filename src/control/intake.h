// One connection between accept() and its proof: fixed-size reads, one deadline. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <changeover/status.h>

#include "control/channel.h"
#include "control/handshake.h"
#include "control/loop_impl.h"

namespace changeover::control {

// Shared: each pending Asio operation holds its intake until its handler has run.
class Intake : public std::enable_shared_from_this<Intake> {
 public:
  // Called once, when the peer has proved itself or will not. A proved peer still waits for
  // finish(): the owner decides whether its session is known and there is room.
  using Done = std::function<void(const std::shared_ptr<Intake>&, const Status&)>;

  Intake(Socket socket, std::string address, std::string origin, const ChannelOptions& options,
         const Nonce& nonce, const SessionId& session, Done done);

  void start();
  // Refuses before the first byte.
  void refuse(Verdict verdict);
  // Ends it with this error, as if the peer had gone.
  void cancel(const Status& why);
  void abandon();  // Done is not called any more.

  // The last reply. Not ok when the peer cannot take it; then the socket is closed.
  Status finish(Verdict verdict);
  Socket take_socket() { return std::move(socket_); }

  const ServerHandshake& handshake() const { return handshake_; }
  const std::string& address() const { return address_; }
  // Whose connections count as one peer's while they are not proved: a host, or a process.
  const std::string& origin() const { return origin_; }

 private:
  void read();
  void step(const std::vector<uint8_t>& message);
  void end(const Status& why);
  // The replies are smaller than any socket buffer: one write takes them or the peer is none.
  Status write_now(const std::vector<uint8_t>& reply);

  Socket socket_;
  asio::steady_timer timer_;
  std::string address_;
  std::string origin_;
  std::chrono::nanoseconds deadline_;
  ServerHandshake handshake_;
  Done done_;
  std::vector<uint8_t> message_;
  size_t got_ = 0;
};

}  // namespace changeover::control
