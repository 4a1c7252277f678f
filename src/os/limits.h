// How much memory this process may still take, asked before a large allocation: over-allocation
// of anonymous shared memory is no clean error later (the kernel kills somebody).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover::os {

struct MemoryRoom {
  uint64_t available_bytes = 0;                // MemAvailable of /proc/meminfo
  std::optional<uint64_t> cgroup_limit_bytes;  // the tightest memory.max above us
  std::optional<uint64_t> cgroup_room_bytes;   // that limit less what is used and not reclaimable
  std::optional<uint64_t> file_size_limit_bytes;  // RLIMIT_FSIZE, which memfd obeys

  uint64_t room_bytes() const;  // the smallest of them, without the file size limit
};

// `root` is put before /proc and /sys (tests).
Result<MemoryRoom> read_memory_room(const std::string& root = "");

// kExhausted with every number when `bytes` for `what` do not fit; `file` = also RLIMIT_FSIZE.
Status check_memory_room(const MemoryRoom& room, uint64_t bytes, std::string_view what, bool file);

}  // namespace changeover::os
