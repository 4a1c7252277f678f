#include "control/outreach.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <sys/socket.h>

namespace changeover::control {
namespace {

constexpr auto kQueueFullPause = std::chrono::milliseconds(5);

}  // namespace

Outreach::Outreach(asio::io_context& context, ClientHandshake handshake,
                   std::chrono::nanoseconds deadline, Done done)
    : socket_(context),
      timer_(context),
      pause_(context),
      handshake_(std::move(handshake)),
      deadline_(deadline),
      done_(std::move(done)) {}

void Outreach::start(const Address& address) {
  timer_.expires_after(deadline_);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) {
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(self->deadline_);
      self->end({Code::kDeadline, "waited " + std::to_string(waited.count()) +
                                      " ms for the publisher to answer (" + self->step_ + ")"});
    }
  });
  if (address.protocol().family() == AF_UNIX) {
    connect_local(address);
    return;
  }
  socket_.async_connect(address, [self = shared_from_this()](std::error_code error) {
    if (error) {
      self->end({Code::kUnavailable, error.message()});
    } else {
      self->connected();
    }
  });
}

// A unix socket connects at once or not at all. Where the listener's queue is full there is nothing
// to wait on, and who comes back seldom finds no place between those who come back often.
void Outreach::connect_local(const Address& address) {
  const auto self = shared_from_this();  // It may end here, and be let go of by its owner.
  if (!done_) {
    return;
  }
  std::error_code error;
  if (!socket_.is_open()) {
    socket_.open(address.protocol(), error);
    if (!error) {
      socket_.native_non_blocking(true, error);
    }
  }
  if (error) {
    end({Code::kUnavailable, error.message()});
    return;
  }
  if (::connect(socket_.native_handle(), address.data(), static_cast<socklen_t>(address.size())) ==
      0) {
    connected();
  } else if (errno == EAGAIN || errno == EINTR) {
    pause_.expires_after(kQueueFullPause);
    pause_.async_wait([self, address](std::error_code ended) {
      if (!ended) {
        self->connect_local(address);
      }
    });
  } else {
    end({Code::kUnavailable, std::error_code(errno, std::system_category()).message()});
  }
}

void Outreach::connected() {
  step_ = "handshake";
  handshake_.start(request_);
  exchange();
}

void Outreach::exchange() {
  if (!done_) {
    return;
  }
  asio::async_write(
      socket_, asio::buffer(request_), [self = shared_from_this()](std::error_code error, size_t) {
        if (error) {
          self->end({Code::kUnavailable, "handshake: " + error.message()});
          return;
        }
        self->answer_.resize(self->handshake_.wants());
        asio::async_read(
            self->socket_, asio::buffer(self->answer_), [self](std::error_code failed, size_t) {
              if (failed) {
                self->end({Code::kUnavailable, "handshake: " + failed.message()});
                return;
              }
              self->request_.clear();
              const Status taken = self->handshake_.take(self->answer_, self->request_);
              if (!taken.ok() || self->handshake_.done()) {
                self->end(taken);
                return;
              }
              self->exchange();
            });
      });
}

void Outreach::end(const Status& status) {
  if (!done_) {
    return;
  }
  auto done = std::exchange(done_, nullptr);
  timer_.cancel();
  pause_.cancel();
  std::error_code ignored;
  if (!status.ok()) {
    socket_.close(ignored);
  }
  done(status, std::move(socket_), handshake_.session());
}

void Outreach::cancel() {
  done_ = nullptr;
  timer_.cancel();
  pause_.cancel();
  std::error_code ignored;
  socket_.close(ignored);
}

}  // namespace changeover::control
