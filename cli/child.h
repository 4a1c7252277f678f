// A child process that never outlives this one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <changeover/status.h>

#include <sys/types.h>

namespace changeover::cli {

// Killed and waited for when the object goes; by the kernel, should this process die first. Start
// children from the main thread, before other threads are there.
class Child {
 public:
  // This program again with these arguments; its output goes into `log`.
  static Result<std::unique_ptr<Child>> start_self(const std::vector<std::string>& arguments,
                                                   const std::string& log);
  // `run` in a copy of this process, joined to it by a pair of pipes; its result is the exit code.
  static Result<std::unique_ptr<Child>> start_function(
      const std::function<int(int read_fd, int write_fd)>& run);

  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill();     // SIGKILL, and waits. Idempotent.
  bool running();  // False once it has ended, however it did.

  // Lines to and from a child that start_function() made.
  Status send(const std::string& line);
  // A line without its newline; none after `timeout_ms`. kUnavailable once the child is gone.
  Result<std::optional<std::string>> receive(int timeout_ms);

 private:
  Child() = default;
  std::optional<std::string> take_line();

  pid_t pid_ = -1;
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::string buffer_;
};

}  // namespace changeover::cli
