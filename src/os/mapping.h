// Memory that can be lent to other processes: anonymous (memfd) mappings, and read-only files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <changeover/status.h>

#include "os/fd.h"

namespace changeover::os {

enum class Access : uint8_t { kReadOnly, kReadWrite };

// One mmap'ed range, unmapped when its owner goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Maps the first `bytes` (> 0) of the descriptor, shared. The descriptor may be closed after.
  static Result<Mapping> map(const Fd& fd, size_t bytes, Access access);

  // Takes all its pages now (kReadWrite) or maps those that exist (kReadOnly), so that no later
  // touch costs a fault. A kernel that cannot is no error.
  void populate(Access access) const;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool valid() const { return data_ != nullptr; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  friend Status replace_in_place(Mapping& mapping, Fd& fd, const std::string& name);
  void forget();  // Owns nothing from now on.
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Anonymous shared memory of this size, zeroed; no name in any file system, gone with its last
// descriptor and mapping. Its size is sealed: whoever gets the descriptor cannot change it.
// kExhausted with the numbers (asked for, MemAvailable, cgroup, RLIMIT_FSIZE) before anything is
// made. Pages are taken when first touched. `name` is seen in /proc/PID/maps only.
Result<Fd> create_memory(const std::string& name, size_t bytes);

// Nobody can map or write the memory for writing from now on, through whichever descriptor;
// mappings that exist go on.
Status forbid_new_writers(const Fd& fd);

// A second descriptor of the same memory through which it can only be read.
Result<Fd> reopen_read_only(const Fd& fd);

// Whether nobody can shrink it: reading a mapping of it can never fault.
bool size_is_sealed(const Fd& fd);

// The size of a file or memory behind a descriptor.
Result<uint64_t> size_of(const Fd& fd);

// A fresh memory with the same content under the same address: whoever holds the old descriptor
// (or a mapping of it) writes where nobody looks (rule P2). Readers may run meanwhile; writers may
// not. On return `fd` is the new memory's. Nothing has changed on failure.
Status replace_in_place(Mapping& mapping, Fd& fd, const std::string& name);

// A whole file, read only. An empty file is an ok Result with valid() == false and bytes() == 0.
// The caller must not let others truncate it meanwhile.
Result<Mapping> map_file(const std::string& path);

}  // namespace changeover::os
