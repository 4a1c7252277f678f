// Helpers of two processes that take turns: exact reads and writes, a forked partner, memory peaks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <changeover/status.h>

#include <sys/types.h>

namespace changeover::bench {

bool write_all(int fd, const void* data, size_t bytes);
bool read_all(int fd, void* data, size_t bytes);

// A copy of this process that runs `run(fd)` at the other end of a socket, and dies with this one.
class Partner {
 public:
  static Result<std::unique_ptr<Partner>> start(const std::function<int(int fd)>& run);
  ~Partner();
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  int fd() const { return fd_; }

 private:
  Partner(pid_t pid, int fd) : pid_(pid), fd_(fd) {}
  pid_t pid_;
  int fd_;
};

// Resident memory of this process now, and its peak since reset_peak(); 0 where the kernel does
// not say.
uint64_t resident_bytes();
uint64_t peak_bytes();
void reset_peak();

}  // namespace changeover::bench
