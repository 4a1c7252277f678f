#include "cli/emit.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli/exit_code.h"

namespace changeover::cli {

void open_standard_streams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);  // The lowest number that is free.
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) {
    close(fd);
  }
}

int finish(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return exit_code;
  }
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) {
    return exit_code;  // A pipe without a reader.
  }
  emit(stderr, "changeover: standard output could not be written in full: is its disk full?\n");
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

}  // namespace changeover::cli
