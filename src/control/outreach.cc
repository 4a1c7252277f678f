#include "control/outreach.h"

#include <utility>

#include <asio/buffer.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

namespace changeover::control {

Outreach::Outreach(asio::io_context& context, ClientHandshake handshake,
                   std::chrono::nanoseconds deadline, Done done)
    : socket_(context),
      timer_(context),
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
  socket_.async_connect(address, [self = shared_from_this()](std::error_code error) {
    if (error) {
      self->end({Code::kUnavailable, error.message()});
      return;
    }
    self->step_ = "handshake";
    self->handshake_.start(self->request_);
    self->exchange();
  });
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
  std::error_code ignored;
  if (!status.ok()) {
    socket_.close(ignored);
  }
  done(status, std::move(socket_), handshake_.session());
}

void Outreach::cancel() {
  done_ = nullptr;
  timer_.cancel();
  std::error_code ignored;
  socket_.close(ignored);
}

}  // namespace changeover::control
