#include "os/socket.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/error.h"
#include "os/lookup.h"
#include "os/poll.h"

namespace changeover::os {

namespace {

constexpr int kBacklog = 128;
constexpr std::chrono::seconds kListenLookup(10);

std::string address_text(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<Fd> make_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return os_error("socket", errno);
  }
  return fd;
}

Status set_option(const Fd& fd, int level, int name, int value, std::string_view what) {
  if (::setsockopt(fd.get(), level, name, &value, sizeof value) != 0) {
    return os_error(what, errno);
  }
  return {};
}

// Waits for a connect() in progress and tells how it ended.
Status finish_connect(const Fd& fd, const Clock& clock, Instant deadline, const std::string& to) {
  CHANGEOVER_TRY(wait_writable(fd, clock, deadline, "a connection to " + to));
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  return error == 0 ? Status() : os_error("connect to " + to, error);
}

Status connect_to(const Fd& fd, const sockaddr* address, socklen_t size, const Clock& clock,
                  Instant deadline, const std::string& to) {
  if (::connect(fd.get(), address, size) == 0) {
    return {};
  }
  if (errno == EINPROGRESS || errno == EINTR) {
    return finish_connect(fd, clock, deadline, to);
  }
  return os_error("connect to " + to, errno);
}

Result<std::pair<sockaddr_un, socklen_t>> unix_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof address.sun_path - 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("unix socket name of {} bytes; 1 to {} are allowed", name.size(),
                              sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // [0] = 0: abstract
  return std::pair(address,
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

}  // namespace

Result<Fd> listen_tcp(const std::string& host, uint16_t port) {
  const SystemClock clock;
  CHANGEOVER_TRY_ASSIGN(const AddressList list,
                        look_up(host, port, AI_PASSIVE, clock, clock.now() + kListenLookup));
  CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket(list->ai_family));
  // Lets a restarted publisher take a port whose old connections are still in TIME_WAIT; a port
  // that somebody listens on stays refused.
  CHANGEOVER_TRY(set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  if (list->ai_family == AF_INET6) {
    CHANGEOVER_TRY(set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY"));
  }
  if (::bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return Status(Code::kUnavailable,
                    fmt::format("port {} in use on {}: another process listens there; end it or "
                                "choose another port (0 = any free one)",
                                port, host));
    }
    return os_error("listen on " + address_text(host, port), errno);
  }
  return fd;
}

Result<uint16_t> local_port(const Fd& fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return os_error("getsockname", errno);
  }
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return Status(Code::kInvalidArgument, "not a tcp socket: it has no port");
}

Result<Fd> dial_tcp(const std::string& host, uint16_t port, const Clock& clock, Instant deadline) {
  CHANGEOVER_TRY_ASSIGN(const AddressList list, look_up(host, port, 0, clock, deadline));
  Status last;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket(at->ai_family));
    last = connect_to(fd, at->ai_addr, at->ai_addrlen, clock, deadline, address_text(host, port));
    if (last.ok()) {
      CHANGEOVER_TRY(tune_tcp(fd));
      return fd;
    }
  }
  return last;
}

Status tune_tcp(const Fd& fd, std::chrono::milliseconds silence) {
  CHANGEOVER_TRY(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  CHANGEOVER_TRY(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  CHANGEOVER_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5, "TCP_KEEPIDLE"));
  CHANGEOVER_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5, "TCP_KEEPINTVL"));
  CHANGEOVER_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()),
                    "TCP_USER_TIMEOUT");
}

Result<Fd> listen_unix(const std::string& name) {
  CHANGEOVER_TRY_ASSIGN(const auto address, unix_address(name));
  CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket(AF_UNIX));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.first), address.second) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return Status(Code::kUnavailable, fmt::format("unix socket \"@{}\" in use: another process "
                                                    "listens there; end it or choose another name",
                                                    name));
    }
    return os_error("listen on unix socket \"@" + name + "\"", errno);
  }
  return fd;
}

Result<Fd> dial_unix(const std::string& name, const Clock& clock, Instant deadline) {
  CHANGEOVER_TRY_ASSIGN(const auto address, unix_address(name));
  CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket(AF_UNIX));
  CHANGEOVER_TRY(connect_to(fd, reinterpret_cast<const sockaddr*>(&address.first), address.second,
                            clock, deadline, "unix socket \"@" + name + "\""));
  return fd;
}

Result<std::pair<Fd, Fd>> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return os_error("socketpair", errno);
  }
  return std::pair(Fd(fds[0]), Fd(fds[1]));
}

Result<Fd> accept_connection(const Fd& listener, const Clock& clock, Instant deadline) {
  while (true) {
    CHANGEOVER_TRY(wait_readable(listener, clock, deadline, "a connection"));
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      return fd;
    }
    // The peer may have gone between the wait and here.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return os_error("accept", errno);
    }
  }
}

Result<PeerCredentials> peer_credentials(const Fd& unix_socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(unix_socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return os_error("SO_PEERCRED", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

std::string peer_text(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "a closed connection";
  }
  if (address.ss_family == AF_UNIX) {
    const Result<PeerCredentials> peer = peer_credentials(socket);
    return peer.ok() ? fmt::format("unix (pid {})", peer->pid) : "unix";
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

}  // namespace changeover::os
