// Unix sockets under a path that only this user may open, and reading or writing what goes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <changeover/status.h>

#include "base/instant.h"
#include "os/clock.h"
#include "os/fd.h"

namespace changeover::os {

// A listening unix socket in the file system, mode 0600, unlinked when its owner goes (unless
// another has taken the path meanwhile).
class PathListener {
 public:
  // Replaces a socket nobody listens on any more. kRefused where somebody does, or where the path
  // is something else than a socket; kInvalidArgument with both numbers for a path too long.
  static Result<PathListener> listen(const std::string& path);
  PathListener(PathListener&& other) noexcept;
  PathListener& operator=(PathListener&&) = delete;
  ~PathListener();

  const Fd& fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  PathListener(Fd fd, std::string path, uint64_t device, uint64_t inode)
      : fd_(std::move(fd)), path_(std::move(path)), device_(device), inode_(inode) {}
  Fd fd_;
  std::string path_;  // empty after a move
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

// kUnavailable where nobody listens.
Result<Fd> dial_path(const std::string& path, const Clock& clock, Instant deadline);

// What is there now of a non-blocking socket: a count, 0 = the peer closed it, none = nothing yet.
Result<std::optional<size_t>> read_some(const Fd& fd, std::span<std::byte> into);
// How much of it the kernel took now, which may be nothing. Never raises SIGPIPE.
Result<size_t> write_some(const Fd& fd, std::span<const std::byte> bytes);

}  // namespace changeover::os
