// Endpoints as socket addresses. Includes Asio.
#pragma once

#include <chrono>
#include <string>

#include <changeover/endpoint.h>
#include <changeover/status.h>

#include "control/loop_impl.h"

namespace changeover::control {

using Address = asio::generic::stream_protocol::endpoint;

// Where an endpoint listens. A host name is looked up, which blocks for at most `limit`.
Result<Address> resolve(const Endpoint& endpoint, const std::string& job,
                        std::chrono::nanoseconds limit);
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
