#include "cli/child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace changeover::cli {
namespace {

Status failed(const char* what) {
  return {Code::kExhausted, fmt::format("{}: {}", what, std::strerror(errno))};
}

// In the child: dies with its launcher, even where that died before this line.
void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(1);
  }
}

}  // namespace

Result<std::unique_ptr<Child>> Child::start_self(const std::vector<std::string>& arguments,
                                                 const std::string& log) {
  std::vector<std::string> words = {"changeover"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (out < 0) {
    return failed(log.c_str());
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    die_with(parent);
    signal(SIGINT, SIG_IGN);  // Ctrl-C is for the launcher, which ends its children.
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  ::close(out);
  if (pid < 0) {
    return failed("cannot start a process");
  }
  std::unique_ptr<Child> child(new Child);
  child->pid_ = pid;
  return child;
}

Result<std::unique_ptr<Child>> Child::start_function(const std::function<int(int, int)>& run) {
  std::array<int, 2> to_child = {-1, -1};
  std::array<int, 2> from_child = {-1, -1};
  if (pipe2(to_child.data(), O_CLOEXEC) != 0 || pipe2(from_child.data(), O_CLOEXEC) != 0) {
    return failed("cannot make a pipe");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    die_with(parent);
    signal(SIGINT, SIG_IGN);
    ::close(to_child[1]);
    ::close(from_child[0]);
    _exit(run(to_child[0], from_child[1]));
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  std::unique_ptr<Child> child(new Child);
  child->read_fd_ = from_child[0];
  child->write_fd_ = to_child[1];
  if (pid < 0) {
    return failed("cannot start a process");
  }
  child->pid_ = pid;
  return child;
}

Child::~Child() {
  kill();
  for (const int fd : {read_fd_, write_fd_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

void Child::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
}

bool Child::running() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != 0) {
    pid_ = -1;
  }
  return pid_ > 0;
}

Status Child::send(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(write_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return {Code::kUnavailable, "the trainer process is gone"};
  }
  return {};
}

std::optional<std::string> Child::take_line() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

Result<std::optional<std::string>> Child::receive(int timeout_ms) {
  if (auto line = take_line()) {
    return line;
  }
  pollfd waiting = {read_fd_, POLLIN, 0};
  if (poll(&waiting, 1, timeout_ms) <= 0) {
    return std::optional<std::string>();
  }
  std::array<char, 1 << 16> bytes;
  const ssize_t size = ::read(read_fd_, bytes.data(), bytes.size());
  if (size == 0 || (size < 0 && errno != EINTR)) {
    return Status(Code::kUnavailable, "the trainer process is gone");
  }
  buffer_.append(bytes.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return take_line();
}

}  // namespace changeover::cli
