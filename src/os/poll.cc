#include "os/poll.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "os/error.h"

namespace changeover::os {

Result<int> poll_until(std::span<pollfd> fds, const Clock& clock, Instant deadline) {
  while (true) {
    timespec left{};
    const timespec* limit = nullptr;
    if (deadline != Instant::never()) {
      const int64_t ns = std::max<int64_t>(0, (deadline - clock.now()).count());
      left.tv_sec = ns / 1'000'000'000;
      left.tv_nsec = ns % 1'000'000'000;
      limit = &left;
    }
    const int ready = ::ppoll(fds.data(), fds.size(), limit, nullptr);
    if (ready >= 0) {
      return ready;
    }
    if (errno != EINTR) {
      return os_error("ppoll", errno);
    }
  }
}

namespace {

Status wait_for(const Fd& fd, short events, const Clock& clock, Instant deadline,
                std::string_view what) {
  const Instant start = clock.now();
  pollfd entry{fd.get(), events, 0};
  CHANGEOVER_TRY_ASSIGN(const int ready, poll_until({&entry, 1}, clock, deadline));
  if (ready == 0) {
    return {Code::kDeadline,
            fmt::format("waited {} for {}", duration_text((clock.now() - start).count()), what)};
  }
  return {};
}

}  // namespace

Status wait_readable(const Fd& fd, const Clock& clock, Instant deadline, std::string_view what) {
  return wait_for(fd, POLLIN, clock, deadline, what);
}

Status wait_writable(const Fd& fd, const Clock& clock, Instant deadline, std::string_view what) {
  return wait_for(fd, POLLOUT, clock, deadline, what);
}

Result<Doorbell> Doorbell::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) {
    return os_error("eventfd", errno);
  }
  return Doorbell(std::move(fd));
}

void Doorbell::ring() const {
  const uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }  // EAGAIN: the counter is full, so it is readable already.
}

bool Doorbell::clear() const {
  uint64_t count = 0;
  ssize_t n = 0;
  do {
    n = ::read(fd_.get(), &count, sizeof count);
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

}  // namespace changeover::os
