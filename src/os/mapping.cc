#include "os/mapping.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/error.h"
#include "os/limits.h"

namespace changeover::os {

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  return *this;
}

void Mapping::forget() {
  data_ = nullptr;
  bytes_ = 0;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, bytes_);
  }
}

Result<Mapping> Mapping::map(const Fd& fd, size_t bytes, Access access) {
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return os_error(fmt::format("mmap of {} bytes", bytes), errno);
  }
  return Mapping(static_cast<std::byte*>(at), bytes);
}

void Mapping::populate(Access access) const {
  ::madvise(data_, bytes_, access == Access::kReadOnly ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
}

Result<Fd> create_memory(const std::string& name, size_t bytes) {
  CHANGEOVER_TRY_ASSIGN(const MemoryRoom room, read_memory_room());
  CHANGEOVER_TRY(check_memory_room(room, bytes, name, true));
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return os_error(name + ": memfd_create", errno);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return os_error(fmt::format("{}: setting its size to {} bytes", name, bytes), errno);
  }
  // A peer that could shrink it would turn our next read into SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return os_error(name + ": sealing its size", errno);
  }
  return fd;
}

Status forbid_new_writers(const Fd& fd) {
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return os_error("sealing memory against new writers", errno);
  }
  return {};
}

Result<Fd> reopen_read_only(const Fd& fd) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  Fd copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy.valid()) {
    return os_error("reopening " + path + " to read", errno);
  }
  return copy;
}

bool size_is_sealed(const Fd& fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<uint64_t> size_of(const Fd& fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return os_error("fstat", errno);
  }
  return static_cast<uint64_t>(info.st_size);
}

Status replace_in_place(Mapping& mapping, Fd& fd, const std::string& name) {
  CHANGEOVER_TRY_ASSIGN(Fd fresh_fd, create_memory(name, mapping.bytes()));
  CHANGEOVER_TRY_ASSIGN(Mapping fresh, Mapping::map(fresh_fd, mapping.bytes(), Access::kReadWrite));
  std::memcpy(fresh.data(), mapping.data(), mapping.bytes());
  // Moves the fresh pages over the live address in one step under the kernel's lock: a reader sees
  // the old pages or the new ones, never a hole.
  void* at = ::mremap(fresh.data(), fresh.bytes(), fresh.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                      mapping.data());
  if (at == MAP_FAILED) {
    return os_error(
        fmt::format("{}: mremap of {} bytes over the live address", name, mapping.bytes()), errno);
  }
  fresh.forget();  // Its range moved; `mapping` owns it under the live address.
  fd = std::move(fresh_fd);
  return {};
}

Result<Mapping> map_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return os_error(path, errno);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return os_error(path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::kInvalidArgument, path + ": not a regular file");
  }
  if (info.st_size == 0) {
    return Mapping();
  }
  Result<Mapping> mapping = Mapping::map(fd, static_cast<size_t>(info.st_size), Access::kReadOnly);
  if (!mapping.ok()) {
    return mapping.status().with_context(path);
  }
  return mapping;
}

}  // namespace changeover::os
