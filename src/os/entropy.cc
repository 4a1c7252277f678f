#include "os/entropy.h"

#include <cerrno>

#include <sys/random.h>

#include "os/error.h"

namespace changeover::os {

Status fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return os_error("getrandom", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<Incarnation> draw_incarnation() {
  Incarnation incarnation;
  CHANGEOVER_TRY(fill_random(std::as_writable_bytes(std::span(incarnation.bytes))));
  return incarnation;
}

}  // namespace changeover::os
