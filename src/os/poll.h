// Waiting for descriptors until a deadline, and the doorbell (eventfd) to be waited for.
#pragma once

#include <span>
#include <string_view>

#include <changeover/status.h>

#include <poll.h>

#include "base/instant.h"
#include "os/clock.h"
#include "os/fd.h"

namespace changeover::os {

// How many of the entries are ready; 0 when the deadline passed first. Signals are waited out.
// Instant::never() waits without end. A deadline in the past looks once.
Result<int> poll_until(std::span<pollfd> fds, const Clock& clock, Instant deadline);

// Ok when readable or closed by the peer (a read tells which); kDeadline "waited T for WHAT".
Status wait_readable(const Fd& fd, const Clock& clock, Instant deadline, std::string_view what);
Status wait_writable(const Fd& fd, const Clock& clock, Instant deadline, std::string_view what);

// A counter that makes its descriptor readable: ring() from any thread or process, clear() by the
// one that waits.
class Doorbell {
 public:
  static Result<Doorbell> create();
  explicit Doorbell(Fd fd) : fd_(std::move(fd)) {}
  const Fd& fd() const { return fd_; }
  void ring() const;
  // True if it had been rung since the last clear().
  bool clear() const;

 private:
  Fd fd_;
};

}  // namespace changeover::os
