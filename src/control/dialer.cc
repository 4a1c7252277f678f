#include "control/dialer.h"

#include <algorithm>
#include <utility>

#include "base/prng.h"
#include "control/connection.h"
#include "control/outreach.h"

namespace changeover::control {

struct Dialer::Impl : std::enable_shared_from_this<Impl> {
  Impl(DialerOptions the_options, Loop& the_loop, ChannelHandler& the_handler, Entropy random)
      : options(std::move(the_options)),
        loop(the_loop),
        handler(the_handler),
        entropy(std::move(random)),
        jitter(options.seed),
        timer(the_loop.impl().context) {}

  void attempt();
  void reach_next();
  void reach(Role role, const SessionId& session, Outreach::Done done);
  void on_control(Socket socket, const SessionId& session);
  void on_both(Socket control, Socket data);
  void failed(const Status& why);
  void retry();

  DialerOptions options;
  Loop& loop;
  ChannelHandler& handler;
  Entropy entropy;
  base::Prng jitter;
  asio::steady_timer timer;
  std::vector<Address> addresses;  // Still to be tried; the first is the one in use.
  Status refusal;                  // Of those that were tried.
  std::shared_ptr<Outreach> outreach;
  std::shared_ptr<Connection> connection;
  PeerId peer = 0;  // Of `connection`; 0 while there is none.
  PeerId next_peer = 1;
  int attempts = 0;
};

Dialer::Dialer(DialerOptions options, Loop& loop, ChannelHandler& handler, Entropy entropy)
    : impl_(std::make_shared<Impl>(std::move(options), loop, handler, std::move(entropy))) {}

Dialer::~Dialer() {
  drop();
}

void Dialer::drop() {
  if (auto outreach = std::exchange(impl_->outreach, nullptr)) {
    outreach->cancel();  // Or its callback would keep us alive.
  }
  if (auto connection = std::exchange(impl_->connection, nullptr)) {
    connection->close();
  }
}

Status Dialer::check(const Endpoint& endpoint, const ChannelOptions& options) {
  if (!options.token.empty() || endpoint.kind != Endpoint::Kind::kTcp) {
    return {};
  }
  CHANGEOVER_TRY_ASSIGN(const auto addresses, resolve(endpoint, options.job, options.handshake));
  return check_stays_here(endpoint, addresses, options.token);
}

void Dialer::dial() {
  impl_->loop.post([impl = impl_] { impl->attempt(); });
}

// Names are looked up, and what they mean is judged, at every attempt: both may change.
void Dialer::Impl::attempt() {
  auto found = resolve(options.endpoint, options.channel.job, options.connect, options.lookup);
  Status status = found.status();
  if (status.ok()) {
    status = check_stays_here(options.endpoint, *found, options.channel.token);
  }
  if (!status.ok()) {
    failed(status);
    return;
  }
  addresses = std::move(found).take();
  refusal = {};
  reach_next();
}

void Dialer::Impl::reach_next() {
  reach(Role::kControl, {},
        [self = shared_from_this()](const Status& status, Socket socket, const SessionId& session) {
          if (status.ok()) {
            self->on_control(std::move(socket), session);
            return;
          }
          // "Wrong token" says more than that nobody listens at another of its addresses.
          if (self->refusal.ok() || status.code() != Code::kUnavailable) {
            self->refusal = status;
          }
          self->addresses.erase(self->addresses.begin());
          self->addresses.empty() ? self->failed(self->refusal) : self->reach_next();
        });
}

void Dialer::Impl::reach(Role role, const SessionId& session, Outreach::Done done) {
  Nonce nonce;
  entropy(nonce);
  outreach = std::make_shared<Outreach>(
      loop.impl().context, ClientHandshake(options.channel.token, role, session, nonce),
      options.connect / addresses.size(), std::move(done));
  outreach->start(addresses.front());
}

void Dialer::Impl::on_control(Socket socket, const SessionId& session) {
  // Shared: the control socket waits in a callback, which must be copyable, for its data socket.
  auto control = std::make_shared<Socket>(std::move(socket));
  reach(Role::kData, session,
        [self = shared_from_this(), control](const Status& status, Socket data, const SessionId&) {
          if (!status.ok()) {
            self->failed(status.with_context("data connection"));
          } else {
            self->on_both(std::move(*control), std::move(data));
          }
        });
}

void Dialer::Impl::on_both(Socket control, Socket data) {
  outreach.reset();
  const PeerId id = next_peer++;
  tune(control, options.channel.silence);
  tune(data, options.channel.silence);
  std::error_code error;
  const int fd = data.release(error);
  if (error) {
    failed({Code::kUnavailable, error.message()});
    return;
  }
  connection = std::make_shared<Connection>(
      std::move(control), options.channel,
      Connection::Events{[this, id](std::span<const uint8_t> body) { handler.on_frame(id, body); },
                         [this, id](const Status& why) {
                           connection.reset();
                           peer = 0;
                           handler.on_closed(id, why);
                           retry();
                         }});
  peer = id;
  handler.on_open(id, options.endpoint.to_string());
  handler.on_data(id, os::Fd(fd));
  connection->start();
}

void Dialer::Impl::failed(const Status& why) {
  outreach.reset();
  handler.on_refused(options.endpoint.to_string(), why.with_context(options.endpoint.to_string()));
  retry();
}

void Dialer::Impl::retry() {
  const int doublings = std::min(attempts++, 16);
  const auto ceiling = std::min(options.back_off_max, options.back_off_min * (1 << doublings));
  const auto wait = std::chrono::nanoseconds(
      static_cast<int64_t>(static_cast<double>(ceiling.count()) * (0.5 + 0.5 * jitter.unit())));
  timer.expires_after(wait);
  timer.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) {
      self->attempt();
    }
  });
}

void Dialer::settled() {
  impl_->loop.post([impl = impl_] { impl->attempts = 0; });
}

void Dialer::send(PeerId peer, std::vector<uint8_t> body) {
  impl_->loop.post([impl = impl_, peer, body = std::move(body)] {
    if (impl->connection && impl->peer == peer) {
      impl->connection->send(body);
    }
  });
}

void Dialer::close(PeerId peer, bool redial) {
  impl_->loop.post([impl = impl_, peer, redial] {
    if (redial && impl->peer != peer) {
      return;  // It has ended, and was dialled again then.
    }
    impl->timer.cancel();
    if (impl->outreach) {
      impl->outreach->cancel();
      impl->outreach.reset();
    }
    if (auto connection = std::exchange(impl->connection, nullptr)) {
      connection->close_after_sending();
    }
    impl->peer = 0;
    if (redial) {
      impl->retry();
    }
  });
}

}  // namespace changeover::control
