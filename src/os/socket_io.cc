// Whole messages and descriptors over a socket, each with a deadline.
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "os/error.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::os {

namespace {

constexpr size_t kDescriptorsMax = 16;

bool later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Status send_all(const Fd& fd, std::span<const std::byte> bytes, const Clock& clock,
                Instant deadline, std::string_view what) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (later(errno)) {
      const Status wait = wait_writable(fd, clock, deadline, what);
      if (!wait.ok()) {
        return {wait.code(),
                fmt::format("{} to take {} bytes, {} sent", wait.message(), bytes.size(), sent)};
      }
    } else {
      return os_error(fmt::format("send to {}, {} of {} bytes sent", what, sent, bytes.size()),
                      errno);
    }
  }
  return {};
}

Status receive_all(const Fd& fd, std::span<std::byte> bytes, const Clock& clock, Instant deadline,
                   std::string_view what) {
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::recv(fd.get(), bytes.data() + got, bytes.size() - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0) {
      return {Code::kUnavailable,
              fmt::format("{} closed the connection: {} of {} bytes had arrived", what, got,
                          bytes.size())};
    } else if (later(errno)) {
      const Status wait = wait_readable(fd, clock, deadline, what);
      if (!wait.ok()) {
        return {wait.code(),
                fmt::format("{}: {} of {} bytes had arrived", wait.message(), got, bytes.size())};
      }
    } else {
      return os_error(
          fmt::format("receive from {}, {} of {} bytes had arrived", what, got, bytes.size()),
          errno);
    }
  }
  return {};
}

Status send_descriptors(const Fd& socket, std::span<const int> descriptors, const Clock& clock,
                        Instant deadline, std::string_view what) {
  if (descriptors.empty() || descriptors.size() > kDescriptorsMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} descriptors in one message; 1 to {} are allowed", descriptors.size(),
                        kDescriptorsMax)};
  }
  char data = 'd';
  iovec piece{&data, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  while (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (!later(errno)) {
      return os_error(fmt::format("send descriptors to {}", what), errno);
    }
    CHANGEOVER_TRY(wait_writable(socket, clock, deadline, what));
  }
  return {};
}

Result<std::vector<Fd>> receive_descriptors(const Fd& socket, size_t count, const Clock& clock,
                                            Instant deadline, std::string_view what) {
  char data = 0;
  iovec piece{&data, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = -1;
  while ((n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (!later(errno)) {
      return os_error(fmt::format("receive descriptors from {}", what), errno);
    }
    CHANGEOVER_TRY(wait_readable(socket, clock, deadline, what));
  }
  std::vector<Fd> descriptors;  // owned before anything is judged, so none can leak
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
      for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
        descriptors.emplace_back(fd);
      }
    }
  }
  if (n == 0) {
    return Status(Code::kUnavailable,
                  fmt::format("{} closed the connection before its descriptors", what));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 && descriptors.size() < kDescriptorsMax) {
    rlimit limit{};  // There was room for all in `control`: the kernel could open no more.
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    return Status(
        Code::kExhausted,
        fmt::format("only {} of the descriptors from {} could be opened: this process may "
                    "have {} (RLIMIT_NOFILE); raise it with ulimit -n",
                    descriptors.size(), what, limit.rlim_cur));
  }
  if (descriptors.size() != count || (message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(Code::kCorrupt, fmt::format("{} sent {} descriptors where {} were expected", what,
                                              descriptors.size(), count));
  }
  return descriptors;
}

}  // namespace changeover::os
