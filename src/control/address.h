// Endpoints as socket addresses. Includes Asio.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <changeover/endpoint.h>
#include <changeover/status.h>

#include "control/loop_impl.h"
#include "os/lookup.h"

namespace changeover::control {

using Address = asio::generic::stream_protocol::endpoint;

// Where an endpoint may listen, at least one address, in the order in which to try them. A host
// name is looked up, which blocks for at most `limit`.
Result<std::vector<Address>> resolve(const Endpoint& endpoint, const std::string& job,
                                     std::chrono::nanoseconds limit,
                                     const os::SystemLookup& lookup = ::getaddrinfo);
// Without a token nothing leaves this host: kRefused where one of the addresses would (rule S1).
Status check_stays_here(const Endpoint& endpoint, const std::vector<Address>& addresses,
                        const std::string& token);
// True for loopback addresses and unix sockets.
bool is_local(const Address& address);
// For messages: "127.0.0.1:7000", "[::1]:7000", "unix".
std::string describe(const Address& address);
// Whose connection it is, as far as can be told before it is proved: "process 4711", "10.0.0.7".
std::string origin_of(Socket& socket, const Address& address);
// The port of a tcp address, else 0.
uint16_t port_of(const Address& address);
// The user of a unix peer is ours (SO_PEERCRED); true for other sockets.
bool same_user(Socket& socket);

}  // namespace changeover::control
