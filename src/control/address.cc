#include "control/address.h"

#include <algorithm>

#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "control/listener.h"
#include "os/clock.h"
#include "os/lookup.h"

namespace changeover::control {
namespace {

asio::ip::tcp::endpoint to_tcp(const Address& address) {
  asio::ip::tcp::endpoint tcp;
  if (address.size() <= tcp.capacity()) {
    tcp.resize(address.size());
    std::copy_n(reinterpret_cast<const char*>(address.data()), address.size(),
                reinterpret_cast<char*>(tcp.data()));
  }
  return tcp;
}

bool is_unix(const Address& address) {
  return address.protocol().family() == AF_UNIX;
}

}  // namespace

std::string shm_socket_name(const std::string& job, const std::string& name) {
  return std::string(1, '\0') + "changeover/" + std::to_string(getuid()) + "/" + job + "/" + name;
}

Result<std::vector<Address>> resolve(const Endpoint& endpoint, const std::string& job,
                                     std::chrono::nanoseconds limit,
                                     const os::SystemLookup& lookup) {
  if (endpoint.kind == Endpoint::Kind::kShm || endpoint.kind == Endpoint::Kind::kUnix) {
    const std::string path =
        endpoint.kind == Endpoint::Kind::kShm ? shm_socket_name(job, endpoint.name) : endpoint.name;
    if (path.size() > 107) {
      return Status(Code::kInvalidArgument,
                    endpoint.to_string() + ": job and name make a socket name of " +
                        std::to_string(path.size()) + " bytes, the kernel takes 107");
    }
    return std::vector<Address>{asio::local::stream_protocol::endpoint(path)};
  }
  if (endpoint.kind != Endpoint::Kind::kTcp) {
    return Status(Code::kInvalidArgument, endpoint.to_string() + " is no address to connect to");
  }
  std::error_code error;
  const auto address = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    return std::vector<Address>{asio::ip::tcp::endpoint(address, endpoint.port)};
  }
  const os::SystemClock clock;
  auto found = os::look_up(endpoint.host, endpoint.port, 0, clock, clock.now() + limit, lookup);
  if (!found.ok()) {
    return found.status().with_context(endpoint.to_string());
  }
  std::vector<Address> addresses;
  for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    addresses.emplace_back(at->ai_addr, at->ai_addrlen, at->ai_protocol);
  }
  return addresses;
}

Status check_stays_here(const Endpoint& endpoint, const std::vector<Address>& addresses,
                        const std::string& token) {
  if (token.empty() && !std::all_of(addresses.begin(), addresses.end(), is_local)) {
    return {Code::kRefused,
            endpoint.to_string() + " leaves this host: set a token, or take a loopback address"};
  }
  return {};
}

bool is_local(const Address& address) {
  return is_unix(address) || to_tcp(address).address().is_loopback();
}

std::string describe(const Address& address) {
  if (is_unix(address)) {
    return "unix";
  }
  const auto tcp = to_tcp(address);
  const std::string host = tcp.address().to_string();
  return (tcp.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(tcp.port());
}

std::string origin_of(Socket& socket, const Address& address) {
  if (!is_unix(address)) {
    return to_tcp(address).address().to_string();
  }
  ucred who{};
  socklen_t bytes = sizeof(who);
  return getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0
             ? "process " + std::to_string(who.pid)
             : "unix";
}

uint16_t port_of(const Address& address) {
  return is_unix(address) ? 0 : to_tcp(address).port();
}

bool same_user(Socket& socket) {
  std::error_code error;
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  if (getsockopt(socket.native_handle(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 ||
      domain != AF_UNIX) {
    return true;
  }
  ucred who{};
  bytes = sizeof(who);
  return getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
         who.uid == getuid();
}

}  // namespace changeover::control
