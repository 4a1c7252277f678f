#include "os/error.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace changeover::os {

namespace {

Code code_of(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
      return Code::kExhausted;
    case EINVAL:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kRefused;
    case ETIMEDOUT:
      return Code::kDeadline;
    default:
      return Code::kUnavailable;
  }
}

}  // namespace

Status os_error(std::string_view what, int error_number) {
  return {code_of(error_number),
          fmt::format("{}: {} (errno {})", what, std::system_category().message(error_number),
                      error_number)};
}

std::string duration_text(int64_t ns) {
  if (ns >= 10'000'000'000) {
    return fmt::format("{:.0f} s", static_cast<double>(ns) / 1e9);
  }
  if (ns >= 1'000'000'000) {
    return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
  }
  return fmt::format("{} ms", (ns + 500'000) / 1'000'000);
}

}  // namespace changeover::os
