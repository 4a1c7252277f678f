#include <array>
#include <string>

#include <changeover/admin.h>

#include <fmt/format.h>

#include "os/clock.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover {
namespace {

constexpr size_t kReplyBytesMax = 256 << 20;  // A few hundred bytes per parameter.
constexpr std::string_view kScheme = "unix:";

}  // namespace

Result<std::string> admin_request(std::string_view address, std::string_view json,
                                  std::chrono::nanoseconds timeout) {
  if (json.find('\n') != std::string_view::npos) {
    return Status(Code::kInvalidArgument, "an admin request is one line");
  }
  if (address.substr(0, kScheme.size()) == kScheme) {
    address.remove_prefix(kScheme.size());
  }
  const os::SystemClock clock;
  const Instant deadline = clock.now() + timeout;
  const std::string path(address);
  CHANGEOVER_TRY_ASSIGN(const os::Fd fd, os::dial_path(path, clock, deadline));
  const std::string what = fmt::format("the rank behind {}", path);
  const std::string line = std::string(json) + '\n';
  CHANGEOVER_TRY(os::send_all(fd, std::as_bytes(std::span(line)), clock, deadline, what));
  std::string reply;
  std::array<std::byte, 64 << 10> buffer;
  while (true) {
    CHANGEOVER_TRY(os::wait_readable(fd, clock, deadline, fmt::format("a reply of {}", what)));
    CHANGEOVER_TRY_ASSIGN(const std::optional<size_t> got, os::read_some(fd, buffer));
    if (!got) {
      continue;
    }
    if (*got == 0) {
      return Status(Code::kUnavailable,
                    fmt::format("{} closed the connection: {} bytes of a reply had arrived", what,
                                reply.size()));
    }
    const size_t before = reply.size();
    reply.append(reinterpret_cast<const char*>(buffer.data()), *got);
    if (const size_t end = reply.find('\n', before); end != std::string::npos) {
      reply.resize(end);
      return reply;
    }
    if (reply.size() > kReplyBytesMax) {
      return Status(Code::kCorrupt,
                    fmt::format("{} replied with more than {} bytes", what, kReplyBytesMax));
    }
  }
}

}  // namespace changeover
