// One proved control connection: frames in, frames out, heartbeats. Loop thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <changeover/status.h>

#include "control/channel.h"
#include "control/loop_impl.h"

namespace changeover::control {

// Shared: each pending Asio operation holds its connection until its handler has run.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Events {
    std::function<void(std::span<const uint8_t>)> frame;
    std::function<void(const Status&)> closed;
  };
  Connection(Socket socket, const ChannelOptions& options, Events events);

  void start();
  // A body over the ceiling, or one too many for a peer that does not read, closes the connection.
  void send(std::span<const uint8_t> body);
  // What was sent before still goes out, and the peer is left a heartbeat's time to read it and
  // close: closed with its bytes unread, tcp would take back what it has not read. No event
  // follows; `held` is let go of when it is over.
  void close_after_sending(std::shared_ptr<void> held = nullptr);
  void close();

 private:
  void read_length();
  void read_body(uint32_t bytes);
  void write();
  void tick();
  void fail(const Status& why);
  void fail_later(const Status& why);  // Not from within a call of the owner.
  void shut_sending();

  Socket socket_;
  asio::steady_timer timer_;
  ChannelOptions options_;
  Events events_;
  std::array<uint8_t, 4> length_{};
  std::vector<uint8_t> body_;
  std::deque<std::vector<uint8_t>> queue_;  // Limit: options_.send_queue_bytes_max.
  size_t queued_bytes_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point heard_;
  bool spoke_ = false;  // A frame that is more than a heartbeat has come.
  bool writing_ = false;
  bool closing_ = false;
  bool open_ = true;
  std::shared_ptr<void> held_;  // Shared: the last connection to end tells whoever waits for all.
};

// NODELAY and a user timeout where the socket is tcp.
void tune(Socket& socket, std::chrono::nanoseconds silence);

}  // namespace changeover::control
