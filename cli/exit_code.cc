#include "cli/exit_code.h"

#include <cstdio>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/emit.h"
#include "cli/terminal.h"

namespace changeover::cli {

int exit_code(Code code) {
  switch (code) {
    case Code::kOk:
      return kExitOk;
    case Code::kInvalidArgument:
    case Code::kCorrupt:
      return kExitBadInput;
    case Code::kRefused:
      return kExitRefused;
    case Code::kUnavailable:
    case Code::kDeadline:
    case Code::kTryLater:
      return kExitPeer;
    case Code::kAborted:
    case Code::kInDoubt:
    case Code::kExhausted:
      return kExitFailed;
  }
  return kExitFailed;
}

int fail(const Status& status, bool json) {
  emit(stderr, "changeover: {}\n",
       printable(status.message().empty() ? status.to_string() : status.message()));
  if (json) {
    const nlohmann::ordered_json text = {{"format", 1},
                                         {"ok", false},
                                         {"code", code_name(status.code())},
                                         {"error", status.message()}};
    emit("{}\n", text.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return exit_code(status.code());
}

int fail_usage(std::string_view message) {
  emit(stderr, "changeover: {}\n", printable(message));
  return kExitUsage;
}

}  // namespace changeover::cli
