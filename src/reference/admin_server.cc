#include "reference/admin_server.h"

#include <algorithm>
#include <array>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "os/clock.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::reference {
namespace {

constexpr std::chrono::seconds kAcceptPause(1);

struct Connection {
  os::Fd fd;
  std::string arrived;   // at most line_bytes_max and one read
  std::string unsent;    // one reply: the next request is read when it is gone
  Instant deadline;      // of the next byte, in or out
  bool asked = false;    // a whole line has come
  bool closing = false;  // as soon as `unsent` is gone
};

class Server final : public AdminServer {
 public:
  Server(AdminServerOptions options, os::PathListener listener, os::Doorbell bell, Handler handler,
         Complaint complaint)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        bell_(std::move(bell)),
        handler_(std::move(handler)),
        complaint_(std::move(complaint)),
        thread_([this] { run(); }) {}

  ~Server() override {
    bell_.ring();
    thread_.join();
  }

 private:
  void run();
  void accept_all();
  bool make_room();
  bool serve(Connection& connection);
  bool receive(Connection& connection);
  void answer(Connection& connection);
  bool flush(Connection& connection);
  void complain(Connection& connection, Code code, const std::string& text);

  AdminServerOptions options_;
  os::SystemClock clock_;
  os::PathListener listener_;
  os::Doorbell bell_;  // rung once, to end
  Handler handler_;
  Complaint complaint_;
  std::list<Connection> connections_;
  Instant accept_at_{};
  std::thread thread_;
};

void Server::run() {
  std::vector<pollfd> polled;
  while (!bell_.clear()) {
    Instant deadline = Instant::never();
    polled.clear();
    polled.push_back({bell_.fd().get(), POLLIN, 0});
    if (clock_.now() >= accept_at_) {
      polled.push_back({listener_.fd().get(), POLLIN, 0});
    } else {
      deadline = accept_at_;
    }
    for (const Connection& connection : connections_) {
      const short events = connection.unsent.empty() ? POLLIN : POLLOUT;
      polled.push_back({connection.fd.get(), events, 0});
      deadline = std::min(deadline, connection.deadline);
    }
    if (const auto ready = os::poll_until(polled, clock_, deadline); !ready.ok()) {
      return;
    }
    std::erase_if(connections_, [this](Connection& c) { return !serve(c); });
    accept_all();
  }
}

void Server::accept_all() {
  while (clock_.now() >= accept_at_) {
    auto fd = os::accept_connection(listener_.fd(), clock_, clock_.now());
    if (!fd.ok()) {
      if (fd.status().code() != Code::kDeadline) {  // No descriptors left: it stays readable.
        accept_at_ = clock_.now() + kAcceptPause;
      }
      return;
    }
    Connection connection;
    connection.fd = std::move(fd).take();
    connection.deadline = clock_.now() + options_.idle_timeout;
    if (connections_.size() >= options_.connections_max && !make_room()) {
      complain(connection, Code::kRefused,
               fmt::format("{} connections are open already: close one", connections_.size()));
      static_cast<void>(flush(connection));
      continue;
    }
    connections_.push_back(std::move(connection));
  }
}

// Those that say nothing must not keep out those that do.
bool Server::make_room() {
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    // A line may lie there unread, or the news that the other side has gone.
    if (!serve(*at) || !at->asked) {
      connections_.erase(at);
      return true;
    }
  }
  return false;
}

// False when the connection is over.
bool Server::serve(Connection& connection) {
  if (clock_.now() >= connection.deadline) {
    return false;
  }
  if (!flush(connection)) {
    return false;
  }
  if (connection.unsent.empty() && !receive(connection)) {
    return false;
  }
  // A pipelining client may have sent several lines at once; each waits for the reply before.
  while (connection.unsent.empty() && !connection.closing) {
    const size_t before = connection.arrived.size();
    answer(connection);
    if (!flush(connection)) {
      return false;
    }
    if (connection.arrived.size() == before) {
      break;
    }
  }
  return !(connection.closing && connection.unsent.empty());
}

bool Server::receive(Connection& connection) {
  std::array<std::byte, 4096> buffer;
  const auto got = os::read_some(connection.fd, buffer);
  if (!got.ok()) {
    return false;
  }
  if (!*got) {
    return true;
  }
  if (**got == 0) {
    return false;
  }
  connection.arrived.append(reinterpret_cast<const char*>(buffer.data()), **got);
  connection.deadline = clock_.now() + options_.idle_timeout;
  return true;
}

void Server::answer(Connection& connection) {
  const size_t end = connection.arrived.find('\n');
  if (std::min(end, connection.arrived.size()) > options_.line_bytes_max) {
    return complain(connection, Code::kInvalidArgument,
                    fmt::format("request line of more than {} bytes", options_.line_bytes_max));
  }
  if (end == std::string::npos) {
    return;
  }
  connection.asked = true;
  connection.unsent = handler_(std::string_view(connection.arrived).substr(0, end)) + '\n';
  connection.arrived.erase(0, end + 1);
}

void Server::complain(Connection& connection, Code code, const std::string& text) {
  connection.unsent = complaint_({code, text}) + '\n';
  connection.closing = true;
}

bool Server::flush(Connection& connection) {
  if (connection.unsent.empty()) {
    return true;
  }
  const auto sent = os::write_some(connection.fd, std::as_bytes(std::span(connection.unsent)));
  if (!sent.ok()) {
    return false;
  }
  if (*sent > 0) {
    connection.unsent.erase(0, *sent);
    connection.deadline = clock_.now() + options_.idle_timeout;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<AdminServer>> AdminServer::start(AdminServerOptions options, Handler handler,
                                                        Complaint complaint) {
  auto listener = os::PathListener::listen(options.path);
  if (!listener.ok()) {
    return listener.status().with_context("admin");
  }
  CHANGEOVER_TRY_ASSIGN(os::Doorbell bell, os::Doorbell::create());
  return std::unique_ptr<AdminServer>(
      std::make_unique<Server>(std::move(options), std::move(listener).take(), std::move(bell),
                               std::move(handler), std::move(complaint)));
}

}  // namespace changeover::reference
