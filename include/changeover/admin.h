// Asking a running rank: line-delimited JSON over its unix socket. docs/admin.md.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover {

// Sends one request line to `address` ("unix:PATH" or a path) and returns the one reply line,
// without its newline. Blocks up to `timeout`. kUnavailable where nobody listens or the rank went
// away, kDeadline where it did not answer, kInvalidArgument for a request with a newline in it.
// A reply that says "ok": false is a success here: it is the rank's answer.
Result<std::string> admin_request(std::string_view address, std::string_view json,
                                  std::chrono::nanoseconds timeout);

}  // namespace changeover
