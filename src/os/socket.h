// Sockets: tcp over IPv4 and IPv6, and abstract unix sockets that carry descriptors. Every one is
// non-blocking and close-on-exec; every wait has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <changeover/status.h>

#include <sys/types.h>

#include "base/instant.h"
#include "os/clock.h"
#include "os/fd.h"

namespace changeover::os {

// Listens on this address alone (an address or a name; IPv6 without brackets, scope ids as in
// fe80::1%eth0). Port 0 takes a free one: local_port(). kUnavailable "port P in use" at once
// when another process has it.
Result<Fd> listen_tcp(const std::string& host, uint16_t port);
Result<uint16_t> local_port(const Fd& fd);

// Connected, with tune_tcp() done. A name is looked up first, within the deadline; an address is
// not looked up anywhere.
Result<Fd> dial_tcp(const std::string& host, uint16_t port, const Clock& clock, Instant deadline);

// TCP_NODELAY, keepalive, and TCP_USER_TIMEOUT: unacknowledged bytes end the connection after
// `silence`, so a peer whose host vanished is found.
Status tune_tcp(const Fd& fd, std::chrono::milliseconds silence = std::chrono::seconds(20));

// An abstract unix socket: no file, its name is free again when the owner dies. kUnavailable
// "NAME in use" when it is taken. Any user of the host may dial: see peer_credentials().
Result<Fd> listen_unix(const std::string& name);
Result<Fd> dial_unix(const std::string& name, const Clock& clock, Instant deadline);
Result<std::pair<Fd, Fd>> socket_pair();

// The next connection; tcp or unix. kDeadline when none came.
Result<Fd> accept_connection(const Fd& listener, const Clock& clock, Instant deadline);

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<PeerCredentials> peer_credentials(const Fd& unix_socket);

// "127.0.0.1:4711", "[::1]:4711", "unix (pid 12)": for messages.
std::string peer_text(const Fd& socket);

// Sends or reads all of it. `what` names the other side in errors. A closed peer is kUnavailable,
// with how much had arrived.
Status send_all(const Fd& fd, std::span<const std::byte> bytes, const Clock& clock,
                Instant deadline, std::string_view what);
Status receive_all(const Fd& fd, std::span<std::byte> bytes, const Clock& clock, Instant deadline,
                   std::string_view what);

// Descriptors over a unix socket, with one byte of data. Exactly `count` (at most 16) arrive or
// none are kept; extra ones are closed and refused.
Status send_descriptors(const Fd& socket, std::span<const int> descriptors, const Clock& clock,
                        Instant deadline, std::string_view what);
Result<std::vector<Fd>> receive_descriptors(const Fd& socket, size_t count, const Clock& clock,
                                            Instant deadline, std::string_view what);

}  // namespace changeover::os
