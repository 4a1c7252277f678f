// Listener and dialer over real sockets for tests: who was told what, and strangers that knock.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "control/dialer.h"
#include "control/handshake.h"
#include "control/listener.h"
#include "os/clock.h"
#include "os/entropy.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::control::testing {

using namespace std::chrono_literals;

inline void entropy(std::span<uint8_t> bytes) {
  (void)os::fill_random(std::as_writable_bytes(bytes));
}

// Remembers what it was told; waits for it with a deadline.
class Recorder : public ChannelHandler {
 public:
  void on_open(PeerId peer, const std::string&) override { note("open " + std::to_string(peer)); }
  void on_data(PeerId peer, os::Fd fd) override {
    std::lock_guard lock(mutex_);
    data_.push_back(std::move(fd));
    lines_.push_back("data " + std::to_string(peer));
    changed_.notify_all();
  }
  void on_frame(PeerId peer, std::span<const uint8_t> body) override {
    note("frame " + std::to_string(peer) + " " + std::string(body.begin(), body.end()));
  }
  void on_closed(PeerId peer, const Status& why) override {
    note("closed " + std::to_string(peer) + " " + why.to_string());
  }
  void on_refused(const std::string& address, const Status& why) override {
    note("refused " + address + " " + why.to_string());
  }

  // The first line that holds `text`, or "" if none came for ten seconds.
  std::string wait(const std::string& text) {
    std::unique_lock lock(mutex_);
    std::string found;
    changed_.wait_for(lock, 10s, [&] {
      for (const auto& line : lines_) {
        if (line.find(text) != std::string::npos) {
          found = line;
          return true;
        }
      }
      return false;
    });
    return found;
  }
  os::Fd take_data() {
    std::lock_guard lock(mutex_);
    os::Fd fd = std::move(data_.front());
    data_.erase(data_.begin());
    return fd;
  }
  int count(const std::string& text) {
    std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.find(text) != std::string::npos;
    }));
  }

 private:
  void note(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::vector<os::Fd> data_;
};

inline std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

struct Publisher {
  explicit Publisher(ChannelOptions options = {}, const char* at = "tcp:127.0.0.1:0") {
    auto opened = Listener::open(*Endpoint::parse(at), options, loop, seen, entropy);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    listener = std::move(opened).take();
    loop.start();
  }
  ~Publisher() { loop.stop(); }
  Recorder seen;
  Loop loop;
  std::unique_ptr<Listener> listener;
};

inline DialerOptions dial_options(const Endpoint& endpoint, ChannelOptions options = {}) {
  DialerOptions dial;
  dial.endpoint = endpoint;
  dial.channel = std::move(options);
  dial.back_off_min = 1ms;
  return dial;
}

struct Rank {
  explicit Rank(const Endpoint& endpoint, ChannelOptions options = {})
      : Rank(dial_options(endpoint, std::move(options))) {}
  explicit Rank(const DialerOptions& dial) {
    dialer = std::make_unique<Dialer>(dial, loop, seen, entropy);
    dialer->dial();
    loop.start();
  }
  ~Rank() { loop.stop(); }
  Recorder seen;
  Loop loop;
  std::unique_ptr<Dialer> dialer;
};

// A rank that works, to show that others are still served.
inline void expect_served(Publisher& publisher, const ChannelOptions& options = {}) {
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_NE(rank.seen.wait("data 1"), "");
  rank.dialer->send(1, bytes("good"));
  EXPECT_NE(publisher.seen.wait(" good"), "");
}

class Stranger {
 public:
  explicit Stranger(const Endpoint& endpoint, int receive_buffer_bytes = 0)
      : fd_(os::dial_tcp(endpoint.host, endpoint.port, clock_, clock_.now() + 5s).take()) {
    if (receive_buffer_bytes > 0) {
      (void)setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                       sizeof(receive_buffer_bytes));
    }
  }
  void say(std::span<const uint8_t> text) {
    (void)os::send_all(fd_, std::as_bytes(text), clock_, clock_.now() + 5s, "publisher");
  }
  void say(std::string_view text) { say(bytes(text)); }
  // What comes until the other end closes.
  std::string hear_all() {
    std::string heard;
    std::array<std::byte, 4096> buffer;
    while (os::wait_readable(fd_, clock_, clock_.now() + 10s, "publisher").ok()) {
      const auto got = os::read_some(fd_, buffer);
      if (!got.ok() || (*got && **got == 0)) {
        break;
      }
      heard.append(reinterpret_cast<const char*>(buffer.data()), got->value_or(0));
    }
    return heard;
  }
  std::vector<uint8_t> hear(size_t count) {
    std::vector<uint8_t> heard(count);
    EXPECT_TRUE(os::receive_all(fd_, std::as_writable_bytes(std::span(heard)), clock_,
                                clock_.now() + 10s, "publisher")
                    .ok());
    return heard;
  }
  // As a peer that knows the token; the session it was given. `why` is how it ended.
  SessionId prove(std::string_view token, Role role = Role::kControl, const SessionId& named = {}) {
    ClientHandshake handshake(token, role, named, {});
    std::vector<uint8_t> request;
    handshake.start(request);
    while (!request.empty()) {
      say(request);
      request.clear();
      why = handshake.take(hear(handshake.wants()), request);
    }
    return handshake.session();
  }
  Status why;
  void close() { fd_.reset(); }

 private:
  os::SystemClock clock_;
  os::Fd fd_;
};

}  // namespace changeover::control::testing
