#include "os/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "os/entropy.h"
#include "os/error.h"

namespace changeover::os {

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in_proc(const Fd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// Not valid where the file system has none, or /proc, by which it is named later, is not there.
Fd open_nameless(const std::string& folder) {
  Fd fd(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  if (fd.valid() && ::access(name_in_proc(fd).c_str(), F_OK) != 0) {
    fd.reset();
  }
  return fd;
}

// "PATH: needs N more bytes, M free on its file system".
Status no_room(const std::string& path, const Fd& fd, uint64_t needed_bytes, int error) {
  struct statvfs info {};
  if (::fstatvfs(fd.get(), &info) != 0) {
    return os_error(path, error);
  }
  return {Code::kExhausted,
          fmt::format("{}: needs {} more bytes, {} free on its file system (errno {}): free some "
                      "or choose another place",
                      path, needed_bytes, uint64_t{info.f_bavail} * info.f_frsize, error)};
}

}  // namespace

Result<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::string& path) {
  struct stat at {};
  if (::lstat(path.c_str(), &at) == 0 && !S_ISREG(at.st_mode)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: is {}, and would be replaced by a file: name a new one or a "
                              "regular file",
                              path,
                              S_ISLNK(at.st_mode)   ? "a symbolic link"
                              : S_ISDIR(at.st_mode) ? "a folder"
                                                    : "a device, pipe or socket"));
  }
  std::array<std::byte, 8> random{};
  CHANGEOVER_TRY(fill_random(random));
  std::string temporary = path + ".partial-";
  for (const std::byte b : random) {
    temporary += fmt::format("{:02x}", static_cast<unsigned>(b));
  }
  Fd fd = open_nameless(folder_of(path));
  const bool has_name = !fd.valid();
  if (has_name) {
    fd = Fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  if (!fd.valid()) {
    return os_error(path + ": create", errno);
  }
  return std::unique_ptr<AtomicFile>(
      new AtomicFile(path, std::move(temporary), std::move(fd), has_name));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, Fd fd, bool has_name)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      has_name_(has_name),
      fd_(std::move(fd)) {}

AtomicFile::~AtomicFile() {
  if (has_name_) {
    ::unlink(temporary_.c_str());
  }
}

// A link cannot take the place of a file that is there; a rename can, and needs a name to start at.
Status AtomicFile::name_it() {
  if (!has_name_ && ::linkat(AT_FDCWD, name_in_proc(fd_).c_str(), AT_FDCWD, temporary_.c_str(),
                             AT_SYMLINK_FOLLOW) != 0) {
    return os_error(path_ + ": link", errno);
  }
  has_name_ = true;
  return {};
}

Status AtomicFile::failed(Status status) {
  failure_ = status;
  return status;
}

// Looked at before each write: past the limit the kernel sends SIGXFSZ, whose default ends the
// process, and a library has no business changing its host's signals.
Status AtomicFile::check_size_limit(uint64_t bytes) const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes_written_ + bytes <= limit.rlim_cur) {
    return {};
  }
  return {Code::kExhausted,
          fmt::format("{}: would grow to {} bytes, the file size limit (RLIMIT_FSIZE) is {}", path_,
                      bytes_written_ + bytes, limit.rlim_cur)};
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  CHANGEOVER_TRY(failure_);
  if (Status limit = check_size_limit(bytes.size()); !limit.ok()) {
    return failed(limit);
  }
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return failed(errno == ENOSPC || errno == EDQUOT ? no_room(path_, fd_, bytes.size(), errno)
                                                       : os_error(path_ + ": write", errno));
    }
    bytes_written_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::commit() {
  CHANGEOVER_TRY(failure_);
  if (committed_) {
    return {Code::kInvalidArgument, path_ + ": committed already"};
  }
  if (::fsync(fd_.get()) != 0) {
    return failed(errno == ENOSPC || errno == EDQUOT ? no_room(path_, fd_, bytes_written_, errno)
                                                     : os_error(path_ + ": fsync", errno));
  }
  if (Status named = name_it(); !named.ok()) {
    return failed(named);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return failed(os_error(path_ + ": rename", errno));
  }
  has_name_ = false;
  committed_ = true;
  const Fd folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder (EINVAL); the file itself is safe there.
  if (folder.valid() && ::fsync(folder.get()) != 0 && errno != EINVAL) {
    return os_error(path_ + ": fsync of its folder", errno);
  }
  return {};
}

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  CHANGEOVER_TRY_ASSIGN(const std::unique_ptr<AtomicFile> file, AtomicFile::create(path));
  CHANGEOVER_TRY(file->write(bytes));
  return file->commit();
}

Result<std::string> read_file(const std::string& path, uint64_t bytes_max) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return os_error(path, errno);
  }
  std::string text;
  std::array<char, 16384> chunk;
  while (true) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return os_error(path, errno);
    }
    if (n == 0) {
      return text;
    }
    if (text.size() + static_cast<size_t>(n) > bytes_max) {
      return Status(Code::kExhausted,
                    fmt::format("{}: longer than the {} bytes allowed", path, bytes_max));
    }
    text.append(chunk.data(), static_cast<size_t>(n));
  }
}

}  // namespace changeover::os
