#include "os/local_socket.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"
#include "os/poll.h"

namespace changeover::os {
namespace {

constexpr int kBacklog = 16;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalidArgument,
                  fmt::format("unix socket path of {} bytes, 1 to {} are possible: {}", path.size(),
                              sizeof address.sun_path - 1, path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return os_error("unix socket", errno);
  }
  return fd;
}

// Whether a path may be bound: free, or a socket whose owner is gone (which is unlinked).
Status clear_path(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? Status() : os_error(path, errno);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return {Code::kRefused, fmt::format("{} is there and is no socket: choose another path", path)};
  }
  CHANGEOVER_TRY_ASSIGN(const Fd probe, make_socket());
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN) {
    return {Code::kUnavailable,
            fmt::format("unix socket {} in use: another process listens there; end it or choose "
                        "another path",
                        path)};
  }
  if (errno != ECONNREFUSED) {
    return os_error("look who listens on unix socket " + path, errno);
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return os_error("unlink the stale socket " + path, errno);
  }
  return {};
}

}  // namespace

Result<PathListener> PathListener::listen(const std::string& path) {
  CHANGEOVER_TRY_ASSIGN(const sockaddr_un address, address_of(path));
  CHANGEOVER_TRY(clear_path(path, address));
  CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket());
  // The file's mode is the socket's own, less the umask: set before bind there is no moment in
  // which another user could connect.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) {
    return os_error("mode of unix socket " + path, errno);
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return os_error("listen on unix socket " + path, errno);
  }
  struct stat status {};
  if (::listen(fd.get(), kBacklog) != 0 || ::lstat(path.c_str(), &status) != 0) {
    const Status failed = os_error("listen on unix socket " + path, errno);
    ::unlink(path.c_str());
    return failed;
  }
  return PathListener(std::move(fd), path, status.st_dev, status.st_ino);
}

PathListener::PathListener(PathListener&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

PathListener::~PathListener() {
  struct stat status {};
  if (!path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ &&
      status.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

Result<Fd> dial_path(const std::string& path, const Clock& clock, Instant deadline) {
  CHANGEOVER_TRY_ASSIGN(const sockaddr_un address, address_of(path));
  CHANGEOVER_TRY_ASSIGN(Fd fd, make_socket());
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EAGAIN && clock.now() < deadline) {  // Its queue is full: look again shortly.
      const Instant soon = clock.now() + std::chrono::milliseconds(10);
      CHANGEOVER_TRY_ASSIGN(int ready, poll_until({}, clock, std::min(soon, deadline)));
      static_cast<void>(ready);
      continue;
    }
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return Status(Code::kUnavailable, fmt::format("nobody listens on unix socket {}", path));
    }
    if (errno == EAGAIN) {
      return Status(Code::kDeadline, fmt::format("waited for room on unix socket {}", path));
    }
    if (errno != EINTR) {
      return os_error("connect to unix socket " + path, errno);
    }
  }
  return fd;
}

Result<std::optional<size_t>> read_some(const Fd& fd, std::span<std::byte> into) {
  while (true) {
    const ssize_t n = ::recv(fd.get(), into.data(), into.size(), 0);
    if (n >= 0) {
      return std::optional<size_t>(static_cast<size_t>(n));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::optional<size_t>();
    }
    if (errno == ECONNRESET) {
      return std::optional<size_t>(0);
    }
    if (errno != EINTR) {
      return os_error("read", errno);
    }
  }
}

Result<size_t> write_some(const Fd& fd, std::span<const std::byte> bytes) {
  while (true) {
    const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      return static_cast<size_t>(n);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return size_t{0};
    }
    if (errno != EINTR) {
      return os_error("write", errno);
    }
  }
}

}  // namespace changeover::os
