// errno as a Status.
#pragma once

#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover::os {

// "WHAT: reason (errno N)", with the code that says what the caller does next: no room
// (ENOSPC, ENOMEM, EMFILE, ...) is kExhausted, a bad path or argument kInvalidArgument, no
// permission kRefused, ETIMEDOUT kDeadline, the rest (an address in use among them) kUnavailable.
Status os_error(std::string_view what, int error_number);

// "12.5 s", "300 ms": how long a wait was, for the messages rule R7 asks for.
std::string duration_text(int64_t ns);

}  // namespace changeover::os
