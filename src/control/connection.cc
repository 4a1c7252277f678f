#include "control/connection.h"

#include <algorithm>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace changeover::control {
namespace {

uint32_t little_endian(const std::array<uint8_t, 4>& bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e9;
}

}  // namespace

void tune(Socket& socket, std::chrono::nanoseconds silence) {
  const int fd = socket.native_handle();
  int family = 0;
  socklen_t bytes = sizeof(family);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0 || family == AF_UNIX) {
    return;
  }
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto timeout_ms = static_cast<unsigned int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(silence).count());
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

Connection::Connection(Socket socket, const ChannelOptions& options, Events events)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      options_(options),
      events_(std::move(events)) {}

void Connection::start() {
  started_ = heard_ = std::chrono::steady_clock::now();
  tick();
  read_length();
}

void Connection::read_length() {
  asio::async_read(socket_, asio::buffer(length_),
                   [self = shared_from_this()](std::error_code error, size_t got) {
                     if (!self->open_) {
                       return;
                     }
                     if (error) {
                       self->fail({got == 0 ? Code::kUnavailable : Code::kCorrupt,
                                   got == 0 ? "connection ended: " + error.message()
                                            : "connection ended within a frame's length"});
                       return;
                     }
                     self->heard_ = std::chrono::steady_clock::now();
                     self->read_body(little_endian(self->length_));
                   });
}

void Connection::read_body(uint32_t bytes) {
  if (bytes == 0) {
    read_length();
    return;
  }
  if (bytes > options_.frame_bytes_max) {
    fail({Code::kCorrupt, "a frame of " + std::to_string(bytes) + " bytes, at most " +
                              std::to_string(options_.frame_bytes_max) + " are taken"});
    return;
  }
  body_.resize(bytes);
  asio::async_read(
      socket_, asio::buffer(body_), [self = shared_from_this()](std::error_code error, size_t got) {
        if (!self->open_) {
          return;
        }
        if (error) {
          self->fail({Code::kCorrupt, "connection ended after " + std::to_string(got) +
                                          " of a frame's " + std::to_string(self->body_.size()) +
                                          " bytes"});
          return;
        }
        self->heard_ = std::chrono::steady_clock::now();
        self->spoke_ = true;
        if (!self->closing_) {
          self->events_.frame(self->body_);
        }
        if (self->open_) {
          self->read_length();
        }
      });
}

void Connection::send(std::span<const uint8_t> body) {
  if (!open_ || closing_) {
    return;
  }
  if (body.size() > options_.frame_bytes_max) {
    fail_later(
        {Code::kInvalidArgument, "a frame of " + std::to_string(body.size()) + " bytes to send, " +
                                     std::to_string(options_.frame_bytes_max) + " is the most"});
    return;
  }
  if (queued_bytes_ + body.size() > options_.send_queue_bytes_max) {
    fail_later({Code::kUnavailable, "the peer does not read: " + std::to_string(queued_bytes_) +
                                        " bytes wait to be sent"});
    return;
  }
  const auto bytes = static_cast<uint32_t>(body.size());
  std::vector<uint8_t> frame;
  frame.reserve(4 + body.size());
  for (int shift = 0; shift < 32; shift += 8) {
    frame.push_back(static_cast<uint8_t>(bytes >> shift));
  }
  frame.insert(frame.end(), body.begin(), body.end());
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  write();
}

void Connection::write() {
  if (writing_ || queue_.empty()) {
    return;
  }
  writing_ = true;
  asio::async_write(socket_, asio::buffer(queue_.front()),
                    [self = shared_from_this()](std::error_code error, size_t) {
                      self->writing_ = false;
                      if (!self->open_) {
                        return;
                      }
                      if (error) {
                        self->fail({Code::kUnavailable, "connection ended: " + error.message()});
                        return;
                      }
                      self->queued_bytes_ -= self->queue_.front().size();
                      self->queue_.pop_front();
                      if (self->queue_.empty() && self->closing_) {
                        self->shut_sending();
                      } else {
                        self->write();
                      }
                    });
}

void Connection::tick() {
  timer_.expires_after(options_.heartbeat);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (error || !self->open_) {
      return;
    }
    if (self->closing_) {
      self->close();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!self->spoke_ && now - self->started_ > self->options_.handshake) {
      self->fail({Code::kDeadline,
                  "waited " + std::to_string(seconds(now - self->started_)) +
                      " s for its first message; the connection is proved, heartbeats alone came"});
      return;
    }
    const auto silent = now - self->heard_;
    if (silent > self->options_.silence) {
      self->fail({Code::kDeadline, "no sign of life for " + std::to_string(seconds(silent)) +
                                       " s, heartbeats are due every " +
                                       std::to_string(seconds(self->options_.heartbeat)) + " s"});
      return;
    }
    if (self->queue_.empty()) {
      self->send({});
    }
    if (self->open_) {
      self->tick();
    }
  });
}

void Connection::fail(const Status& why) {
  if (!open_) {
    return;
  }
  const bool ours = closing_;
  close();
  if (!ours) {
    events_.closed(why);
  }
}

void Connection::fail_later(const Status& why) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), why] { self->fail(why); });
}

// The peer closes after it has read the last frame; closing first could take it away from it.
void Connection::shut_sending() {
  std::error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void Connection::close_after_sending(std::shared_ptr<void> held) {
  if (!open_) {
    return;
  }
  held_ = std::move(held);
  closing_ = true;
  tick();  // The whole heartbeat from here, however far the running one is.
  if (queue_.empty()) {
    shut_sending();
  }
}

void Connection::close() {
  open_ = false;
  std::error_code ignored;
  timer_.cancel();
  socket_.shutdown(asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
  held_.reset();
}

}  // namespace changeover::control
