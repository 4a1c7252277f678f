#include "os/fd.h"

#include <unistd.h>

namespace changeover::os {

void Fd::reset(int fd) {
  if (fd_ >= 0 && fd_ != fd) {
    ::close(fd_);  // EINTR from close() on Linux means closed; a retry could close another's.
  }
  fd_ = fd;
}

}  // namespace changeover::os
