// Child processes that end with their launcher (rule S4).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <changeover/status.h>

#include <sys/types.h>

#include "base/instant.h"
#include "os/clock.h"
#include "os/fd.h"

namespace changeover::os {

enum class ChildStream : uint8_t { kInherit, kNull, kPipe };

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours
  ChildStream input = ChildStream::kNull;
  ChildStream output = ChildStream::kInherit;
  ChildStream error = ChildStream::kInherit;
};

struct ExitStatus {
  int code = 0;                   // exit code, when signal == 0
  int signal = 0;                 // the signal that ended it
  std::string to_string() const;  // "exit code 3", "signal 9"
};

// A running child. It gets SIGKILL when the thread that spawned it ends, and when this object goes.
class Child {
 public:
  static Result<Child> spawn(const SpawnOptions& options);
  Child(Child&&) noexcept = default;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  pid_t pid() const { return pid_.value; }
  // Where SpawnOptions said kPipe: our ends, blocking.
  Fd& input() { return input_; }
  Fd& output() { return output_; }
  Fd& error() { return error_; }
  // Readable (poll) once the child has ended.
  const Fd& ended() const { return pidfd_; }

  Status signal(int number) const;  // ok for a child that has ended already
  // kDeadline when it still runs. The same answer again once it has ended.
  Result<ExitStatus> wait(const Clock& clock, Instant deadline);

 private:
  struct Pid {  // -1 after a move
    Pid() = default;
    explicit Pid(pid_t v) : value(v) {}
    Pid(Pid&& other) noexcept : value(std::exchange(other.value, -1)) {}
    Pid& operator=(Pid&& other) noexcept {
      value = std::exchange(other.value, -1);
      return *this;
    }
    pid_t value = -1;
  };
  Child() = default;
  void end();

  Pid pid_;
  Fd pidfd_, input_, output_, error_;
  bool reaped_ = false;
  ExitStatus status_;
};

}  // namespace changeover::os
