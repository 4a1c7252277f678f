#include "control/listener.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include <asio/basic_socket_acceptor.hpp>
#include <asio/post.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "control/address.h"
#include "control/connection.h"
#include "control/intake.h"

namespace changeover::control {
namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

}  // namespace

struct Listener::Impl : std::enable_shared_from_this<Impl> {
  struct Peer {
    std::shared_ptr<Connection> connection;
    SessionId session;
    bool has_data = false;
  };

  Impl(Loop& the_loop, const ChannelOptions& the_options, ChannelHandler& the_handler,
       Entropy random)
      : loop(the_loop),
        options(the_options),
        handler(the_handler),
        entropy(std::move(random)),
        acceptor(the_loop.impl().context),
        pause(the_loop.impl().context) {}

  Status bind(const Endpoint& wanted);
  Status bind_to(const Address& address, const Endpoint& wanted);
  void accept();
  void take(Socket socket, std::string address, std::string origin, bool refused);
  std::shared_ptr<Intake> most_crowding() const;
  void proved(const std::shared_ptr<Intake>& intake, const Status& status);
  void add_control(const std::shared_ptr<Intake>& intake);
  void add_data(const std::shared_ptr<Intake>& intake);

  Loop& loop;
  ChannelOptions options;
  ChannelHandler& handler;
  Entropy entropy;
  Acceptor acceptor;
  asio::steady_timer pause;
  Endpoint endpoint;
  // Oldest first. Limit: options.half_open_max, beyond it the most crowding one goes.
  std::list<std::shared_ptr<Intake>> half_open;
  std::map<PeerId, Peer> peers;  // Limit: options.peers_max.
  PeerId next_peer = 1;
};

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

// The loop is stopped: what waits to be proved ends here, or its callbacks would keep us alive.
Listener::~Listener() {
  for (const auto& intake : impl_->half_open) {
    intake->abandon();
  }
  for (const auto& [id, peer] : impl_->peers) {
    peer.connection->close();
  }
  std::error_code ignored;
  impl_->acceptor.close(ignored);
}

const Endpoint& Listener::endpoint() const {
  return impl_->endpoint;
}

Result<std::unique_ptr<Listener>> Listener::open(const Endpoint& endpoint,
                                                 const ChannelOptions& options, Loop& loop,
                                                 ChannelHandler& handler, Entropy entropy) {
  auto impl = std::make_shared<Impl>(loop, options, handler, std::move(entropy));
  CHANGEOVER_TRY(impl->bind(endpoint));
  loop.post([impl] { impl->accept(); });
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Status Listener::Impl::bind(const Endpoint& wanted) {
  CHANGEOVER_TRY_ASSIGN(const auto addresses, resolve(wanted, options.job, options.handshake));
  CHANGEOVER_TRY(check_stays_here(wanted, addresses, options.token));
  Status status;
  for (const Address& address : addresses) {
    if (status = bind_to(address, wanted); status.ok()) {
      break;
    }
  }
  return status;
}

Status Listener::Impl::bind_to(const Address& address, const Endpoint& wanted) {
  std::error_code error;
  acceptor.close(error);
  acceptor.open(address.protocol(), error);
  if (!error && address.protocol().family() != AF_UNIX) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) {
    acceptor.bind(address, error);
  }
  if (!error) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error == asio::error::address_in_use) {
    return {Code::kUnavailable, "address in use: another process listens on " + wanted.to_string() +
                                    "; stop it or choose another"};
  }
  if (error) {
    return {Code::kUnavailable, "cannot listen on " + wanted.to_string() + ": " + error.message()};
  }
  endpoint = wanted;
  if (wanted.kind == Endpoint::Kind::kTcp) {
    endpoint.port = port_of(acceptor.local_endpoint(error));
  }
  return {};
}

void Listener::Impl::accept() {
  acceptor.async_accept([self = shared_from_this()](std::error_code error, Socket socket) {
    if (error == asio::error::operation_aborted) {
      return;
    }
    if (error) {
      // Out of descriptors, most likely: those that wait are taken once some are free again.
      self->handler.on_refused("", {Code::kExhausted, "accept: " + error.message()});
      self->pause.expires_after(std::chrono::milliseconds(100));
      self->pause.async_wait([self](std::error_code ended) {
        if (!ended) {
          self->accept();
        }
      });
      return;
    }
    const Address from = socket.remote_endpoint(error);
    const bool refused =
        error || !same_user(socket) || (self->options.token.empty() && !is_local(from));
    std::string origin = error ? "unknown" : origin_of(socket, from);
    self->take(std::move(socket), error ? "unknown" : describe(from), std::move(origin), refused);
    self->accept();
  });
}

void Listener::Impl::take(Socket socket, std::string address, std::string origin, bool refused) {
  Nonce nonce;
  SessionId session;
  entropy(nonce);
  entropy(session);
  tune(socket, options.silence);
  auto intake = std::make_shared<Intake>(
      std::move(socket), std::move(address), std::move(origin), options, nonce, session,
      [self = shared_from_this()](const auto& done, const Status& status) {
        self->half_open.remove(done);
        self->proved(done, status);
      });
  half_open.push_back(intake);
  if (refused) {
    intake->refuse(Verdict::kAddressRefused);
    return;
  }
  intake->start();
  if (half_open.size() > options.half_open_max) {
    most_crowding()->cancel({Code::kExhausted, "more than " +
                                                   std::to_string(options.half_open_max) +
                                                   " connections wait to prove themselves"});
  }
}

// The oldest of whoever has most: one that opens them by the thousand crowds out itself.
std::shared_ptr<Intake> Listener::Impl::most_crowding() const {
  std::map<std::string_view, size_t> count;
  for (const auto& intake : half_open) {
    ++count[intake->origin()];
  }
  return *std::max_element(half_open.begin(), half_open.end(), [&](const auto& a, const auto& b) {
    return count[a->origin()] < count[b->origin()];
  });
}

void Listener::Impl::proved(const std::shared_ptr<Intake>& intake, const Status& status) {
  if (!status.ok()) {
    handler.on_refused(intake->address(), status);
  } else if (intake->handshake().role() == Role::kControl) {
    add_control(intake);
  } else {
    add_data(intake);
  }
}

void Listener::Impl::add_control(const std::shared_ptr<Intake>& intake) {
  const bool full = peers.size() >= options.peers_max;
  if (Status status = intake->finish(full ? Verdict::kFull : Verdict::kOk); !status.ok()) {
    handler.on_refused(intake->address(), status);
    return;
  }
  const PeerId id = next_peer++;
  auto connection = std::make_shared<Connection>(
      intake->take_socket(), options,
      Connection::Events{[this, id](std::span<const uint8_t> body) { handler.on_frame(id, body); },
                         [this, id](const Status& why) {
                           peers.erase(id);
                           handler.on_closed(id, why);
                         }});
  peers.emplace(id, Peer{connection, intake->handshake().session()});
  handler.on_open(id, intake->address());
  connection->start();
}

void Listener::Impl::add_data(const std::shared_ptr<Intake>& intake) {
  const auto at = std::find_if(peers.begin(), peers.end(), [&](const auto& entry) {
    return entry.second.session == intake->handshake().named() && !entry.second.has_data;
  });
  const bool known = at != peers.end();
  if (Status status = intake->finish(known ? Verdict::kOk : Verdict::kSessionUnknown);
      !status.ok()) {
    handler.on_refused(intake->address(), status);
    return;
  }
  at->second.has_data = true;
  std::error_code error;
  const int fd = intake->take_socket().release(error);
  if (error) {
    handler.on_refused(intake->address(), {Code::kUnavailable, error.message()});
    return;
  }
  handler.on_data(at->first, os::Fd(fd));
}

void Listener::send(PeerId peer, std::vector<uint8_t> body) {
  impl_->loop.post([impl = impl_, peer, body = std::move(body)] {
    if (auto at = impl->peers.find(peer); at != impl->peers.end()) {
      at->second.connection->send(body);
    }
  });
}

void Listener::close(PeerId peer) {
  impl_->loop.post([impl = impl_, peer] {
    if (auto at = impl->peers.find(peer); at != impl->peers.end()) {
      at->second.connection->close_after_sending();
      impl->peers.erase(at);
    }
  });
}

void Listener::close_all(std::function<void()> done) {
  impl_->loop.post([impl = impl_, done = std::move(done)] {
    // Shared by the connections: the last one to end lets go of it.
    const std::shared_ptr<void> all(nullptr, [done](void*) { done(); });
    std::error_code ignored;
    impl->acceptor.close(ignored);
    impl->pause.cancel();
    for (auto& [id, peer] : impl->peers) {
      peer.connection->close_after_sending(all);
    }
    impl->peers.clear();
  });
}

}  // namespace changeover::control
