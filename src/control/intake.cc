#include "control/intake.h"

#include <utility>

#include <asio/buffer.hpp>
#include <sys/socket.h>

namespace changeover::control {

Intake::Intake(Socket socket, std::string address, std::string origin,
               const ChannelOptions& options, const Nonce& nonce, const SessionId& session,
               Done done)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      address_(std::move(address)),
      origin_(std::move(origin)),
      deadline_(options.handshake),
      handshake_(options.token, nonce, session),
      done_(std::move(done)) {}

void Intake::start() {
  timer_.expires_after(deadline_);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) {
      self->end(
          {Code::kDeadline,
           "handshake not finished after " +
               std::to_string(
                   std::chrono::duration_cast<std::chrono::milliseconds>(self->deadline_).count()) +
               " ms: " + std::to_string(self->got_) + " of " +
               std::to_string(self->handshake_.wants()) + " bytes came"});
    }
  });
  message_.resize(handshake_.wants());
  read();
}

void Intake::read() {
  socket_.async_read_some(
      asio::buffer(message_.data() + got_, message_.size() - got_),
      [self = shared_from_this()](std::error_code error, size_t bytes) {
        if (!self->done_) {
          return;
        }
        if (error) {
          self->end({Code::kUnavailable, "connection ended after " + std::to_string(self->got_) +
                                             " of " + std::to_string(self->message_.size()) +
                                             " bytes of the handshake"});
          return;
        }
        self->got_ += bytes;
        if (!self->handshake_.plausible({self->message_.data(), self->got_})) {
          self->refuse(Verdict::kNotAPeer);
          return;
        }
        if (self->got_ < self->message_.size()) {
          self->read();
          return;
        }
        self->step(self->message_);
      });
}

void Intake::step(const std::vector<uint8_t>& message) {
  std::vector<uint8_t> reply;
  const Status taken = handshake_.take(message, reply);
  const Status sent = write_now(reply);
  if (!taken.ok() || !sent.ok()) {
    end(taken.ok() ? sent : taken);
    return;
  }
  if (handshake_.proved()) {
    timer_.cancel();
    auto done = std::exchange(done_, nullptr);
    done(shared_from_this(), {});
    return;
  }
  got_ = 0;
  message_.resize(handshake_.wants());
  read();
}

void Intake::refuse(Verdict verdict) {
  std::vector<uint8_t> reply;
  const Status why = handshake_.refuse(verdict, reply);
  (void)write_now(reply);  // Courtesy: the refusal stands whether it is read or not.
  end(why);
}

void Intake::abandon() {
  done_ = nullptr;
}

void Intake::cancel(const Status& why) {
  end(why);
}

Status Intake::finish(Verdict verdict) {
  std::vector<uint8_t> reply;
  Status status =
      verdict == Verdict::kOk ? handshake_.accept(reply) : handshake_.refuse(verdict, reply);
  if (const Status sent = write_now(reply); status.ok()) {
    status = sent;
  }
  if (!status.ok()) {
    std::error_code ignored;
    socket_.close(ignored);
  }
  return status;
}

Status Intake::write_now(const std::vector<uint8_t>& reply) {
  if (reply.empty()) {
    return {};
  }
  const ssize_t sent =
      ::send(socket_.native_handle(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(reply.size())) {
    return {Code::kUnavailable, "connection ended while the handshake was answered"};
  }
  return {};
}

void Intake::end(const Status& why) {
  if (!done_) {
    return;
  }
  timer_.cancel();
  auto done = std::exchange(done_, nullptr);
  std::error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  socket_.close(ignored);
  done(shared_from_this(), why);
}

}  // namespace changeover::control
