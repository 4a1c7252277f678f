// How a command ends: one mapping from the library's codes to exit codes.
#pragma once

#include <string_view>

#include <changeover/status.h>

namespace changeover::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;    // An update or a verification failed.
inline constexpr int kExitUsage = 2;     // The command line is wrong.
inline constexpr int kExitBadInput = 3;  // A file, a stream or a value broke a rule.
inline constexpr int kExitRefused = 4;   // Token or policy.
inline constexpr int kExitPeer = 5;      // A peer is gone, an address is taken, a wait ran out.
inline constexpr int kExitInterrupted = 130;

int exit_code(Code code);

// Says the error on standard error, "changeover: WHAT, WHERE, what to do", and with `json` also
// on standard output as {"format":1,"ok":false,"code":...,"error":...}. Returns the exit code.
int fail(const Status& status, bool json);
// The same for a mistake on the command line that only shows once values are looked at.
int fail_usage(std::string_view message);

}  // namespace changeover::cli
