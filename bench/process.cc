#include "bench/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace changeover::bench {

bool write_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t size = ::write(fd, at, std::min<size_t>(bytes, 1 << 20));
    if (size <= 0 && errno != EINTR) {
      return false;
    }
    at += std::max<ssize_t>(size, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(size, 0));
  }
  return true;
}

bool read_all(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t size = ::read(fd, at, std::min<size_t>(bytes, 1 << 20));
    if (size == 0 || (size < 0 && errno != EINTR)) {
      return false;
    }
    at += std::max<ssize_t>(size, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(size, 0));
  }
  return true;
}

Result<std::unique_ptr<Partner>> Partner::start(const std::function<int(int fd)>& run) {
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status(Code::kExhausted, "cannot make a socket pair");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(1);
    }
    ::close(ends[0]);
    _exit(run(ends[1]));
  }
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return Status(Code::kExhausted, "cannot start a process");
  }
  return std::unique_ptr<Partner>(new Partner(pid, ends[0]));
}

Partner::~Partner() {
  ::close(fd_);
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

namespace {

uint64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    if (word == key) {
      uint64_t kilobytes = 0;
      in >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

}  // namespace

uint64_t resident_bytes() {
  return status_bytes("VmRSS:");
}
uint64_t peak_bytes() {
  return status_bytes("VmHWM:");
}
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace changeover::bench
