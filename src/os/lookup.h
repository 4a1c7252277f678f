// Host names to addresses, until a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <changeover/status.h>

#include <netdb.h>

#include "base/instant.h"
#include "os/clock.h"

namespace changeover::os {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
using SystemLookup =
    std::function<int(const char* host, const char* port, const addrinfo*, addrinfo** list)>;

// Stream addresses of `host`, at least one; `flags` are getaddrinfo's. An address is read as it is.
// A name is looked up on a thread of its own: the system's call takes as long as the name servers
// let it and cannot be interrupted, so past the deadline the thread is left to end by itself.
// kDeadline says for which name and how long; kUnavailable what the system said.
Result<AddressList> look_up(const std::string& host, uint16_t port, int flags, const Clock& clock,
                            Instant deadline, SystemLookup lookup = ::getaddrinfo);

}  // namespace changeover::os
