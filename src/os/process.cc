#include "os/process.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/error.h"
#include "os/poll.h"

extern char** environ;

namespace changeover::os {

namespace {

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return os_error("pipe", errno);
  }
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

// One standard stream of the child: what it gets, and our end where there is one.
Status prepare_stream(ChildStream kind, bool child_reads, Fd& childs, Fd& ours) {
  if (kind == ChildStream::kPipe) {
    CHANGEOVER_TRY_ASSIGN(Pipe pipe, make_pipe());
    childs = std::move(child_reads ? pipe.read : pipe.write);
    ours = std::move(child_reads ? pipe.write : pipe.read);
  } else if (kind == ChildStream::kNull) {
    childs = Fd(::open("/dev/null", (child_reads ? O_RDONLY : O_WRONLY) | O_CLOEXEC));
    if (!childs.valid()) {
      return os_error("/dev/null", errno);
    }
  }
  return {};
}

std::vector<std::string> environment_with(const SpawnOptions& options) {
  std::vector<std::string> all;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    bool replaced = false;
    for (const auto& [name, value] : options.environment) {
      replaced |= entry.substr(0, entry.find('=')) == name;
    }
    if (!replaced) {
      all.emplace_back(entry);
    }
  }
  for (const auto& [name, value] : options.environment) {
    all.push_back(name + "=" + value);
  }
  return all;
}

std::vector<char*> pointers_of(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: only calls that are safe there (the parent may have threads).
[[noreturn]] void run_child(pid_t parent, const std::array<int, 3>& streams, char* const* argv,
                            char* const* environment, int report_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(127);  // It died before the prctl.
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int i = 0; i < 3; ++i) {
    if (streams[i] >= 0 && ::dup2(streams[i], i) < 0) {
      ::_exit(127);
    }
  }
  ::execvpe(argv[0], argv, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(report_fd, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string ExitStatus::to_string() const {
  return signal != 0 ? fmt::format("signal {}", signal) : fmt::format("exit code {}", code);
}

Result<Child> Child::spawn(const SpawnOptions& options) {
  if (options.argv.empty()) {
    return Status(Code::kInvalidArgument, "spawn: no command");
  }
  Child child;
  Fd in, out, err;
  CHANGEOVER_TRY(prepare_stream(options.input, true, in, child.input_));
  CHANGEOVER_TRY(prepare_stream(options.output, false, out, child.output_));
  CHANGEOVER_TRY(prepare_stream(options.error, false, err, child.error_));
  CHANGEOVER_TRY_ASSIGN(Pipe report, make_pipe());
  const std::vector<std::string> environment = environment_with(options);
  const std::vector<char*> argv_pointers = pointers_of(options.argv);
  const std::vector<char*> environment_pointers = pointers_of(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return os_error("fork", errno);
  }
  if (pid == 0) {
    run_child(parent, {in.get(), out.get(), err.get()}, argv_pointers.data(),
              environment_pointers.data(), report.write.get());
  }
  child.pid_ = Pid(pid);
  child.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!child.pidfd_.valid()) {
    return os_error("pidfd_open", errno);
  }
  report.write.reset();
  int error = 0;
  ssize_t n = 0;
  while ((n = ::read(report.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n == sizeof error) {  // otherwise exec closed the pipe: it runs
    return os_error(options.argv[0], error);
  }
  return child;
}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::move(other.pid_);
    pidfd_ = std::move(other.pidfd_);
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
    error_ = std::move(other.error_);
    reaped_ = other.reaped_;
    status_ = other.status_;
  }
  return *this;
}

Child::~Child() {
  end();
}

void Child::end() {
  if (pid_.value > 0 && !reaped_) {
    ::kill(pid_.value, SIGKILL);  // Not reaped yet, so the number is still this child's.
    while (::waitpid(pid_.value, nullptr, 0) < 0 && errno == EINTR) {
    }
    reaped_ = true;
  }
}

Status Child::signal(int number) const {
  if (pid_.value <= 0) {
    return {Code::kInvalidArgument, "signal to a process that was never started, or moved away"};
  }
  if (!reaped_ && ::kill(pid_.value, number) != 0) {
    return os_error(fmt::format("signal {} to process {}", number, pid_.value), errno);
  }
  return {};
}

Result<ExitStatus> Child::wait(const Clock& clock, Instant deadline) {
  if (reaped_) {
    return status_;
  }
  CHANGEOVER_TRY(
      wait_readable(pidfd_, clock, deadline, fmt::format("process {} to end", pid_.value)));
  int raw = 0;
  while (::waitpid(pid_.value, &raw, 0) < 0) {
    if (errno != EINTR) {
      return os_error("waitpid", errno);
    }
  }
  reaped_ = true;
  status_ = WIFSIGNALED(raw) ? ExitStatus{0, WTERMSIG(raw)} : ExitStatus{WEXITSTATUS(raw), 0};
  return status_;
}

}  // namespace changeover::os
