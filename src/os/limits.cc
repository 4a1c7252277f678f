#include "os/limits.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <sys/resource.h>

#include "os/file.h"

namespace changeover::os {

namespace {

constexpr uint64_t kSmallFileBytes = 1 << 20;

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) {
    return std::nullopt;  // "max", or not a number
  }
  return value;
}

// The number after "key" at the start of a line, white space skipped.
std::optional<uint64_t> number_after(std::string_view text, std::string_view key) {
  size_t at = 0;
  while (at < text.size()) {
    std::string_view line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    if (line.starts_with(key)) {
      line.remove_prefix(key.size());
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      return parse_number(line);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> number_in(const std::string& path) {
  const Result<std::string> text = read_file(path, kSmallFileBytes);
  return text.ok() ? parse_number(*text) : std::nullopt;
}

void tighten(MemoryRoom& room, std::optional<uint64_t> limit, std::optional<uint64_t> used,
             std::optional<uint64_t> reclaimable) {
  if (!limit) {
    return;
  }
  const uint64_t fixed = used.value_or(0) - std::min(used.value_or(0), reclaimable.value_or(0));
  const uint64_t left = *limit - std::min(*limit, fixed);
  if (!room.cgroup_room_bytes || left < *room.cgroup_room_bytes) {
    room.cgroup_limit_bytes = limit;
    room.cgroup_room_bytes = left;
  }
}

// One folder of the version 2 hierarchy, or of version 1's memory controller.
void read_cgroup_folder(const std::string& folder, bool v2, MemoryRoom& room) {
  const auto limit = number_in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!limit || *limit > (uint64_t{1} << 60)) {  // version 1 writes "no limit" as a huge number
    return;
  }
  const auto used = number_in(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  const Result<std::string> stat = read_file(folder + "/memory.stat", kSmallFileBytes);
  tighten(room, limit, used,
          stat.ok() ? number_after(*stat, v2 ? "inactive_file " : "total_inactive_file ")
                    : std::nullopt);
}

// Our own group and each one above it: every limit on the way holds.
void read_cgroup(const std::string& root, MemoryRoom& room) {
  const Result<std::string> groups = read_file(root + "/proc/self/cgroup", kSmallFileBytes);
  if (!groups.ok()) {
    return;
  }
  size_t at = 0;
  while (at < groups->size()) {
    std::string_view line(*groups);
    line = line.substr(at, line.find('\n', at) - at);
    at += line.size() + 1;
    const bool v2 = line.starts_with("0::");
    const size_t v1 = line.find(":memory:");
    if (!v2 && v1 == std::string_view::npos) {
      continue;
    }
    const std::string base = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    std::string path(v2 ? line.substr(3) : line.substr(v1 + 8));
    while (true) {
      read_cgroup_folder(base + (path == "/" ? "" : path), v2, room);
      if (path.empty() || path == "/") {
        break;
      }
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

}  // namespace

uint64_t MemoryRoom::room_bytes() const {
  return std::min(available_bytes, cgroup_room_bytes.value_or(UINT64_MAX));
}

Result<MemoryRoom> read_memory_room(const std::string& root) {
  MemoryRoom room;
  CHANGEOVER_TRY_ASSIGN(const std::string meminfo,
                        read_file(root + "/proc/meminfo", kSmallFileBytes));
  const auto available_kib = number_after(meminfo, "MemAvailable:");
  if (!available_kib) {
    return Status(Code::kUnavailable, root + "/proc/meminfo: no MemAvailable");
  }
  room.available_bytes = *available_kib * 1024;
  read_cgroup(root, room);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    room.file_size_limit_bytes = limit.rlim_cur;
  }
  return room;
}

Status check_memory_room(const MemoryRoom& room, uint64_t bytes, std::string_view what, bool file) {
  const bool over_file_limit = file && bytes > room.file_size_limit_bytes.value_or(UINT64_MAX);
  if (bytes <= room.room_bytes() && !over_file_limit) {
    return {};
  }
  std::string text =
      fmt::format("{} needs {} bytes; MemAvailable is {}", what, bytes, room.available_bytes);
  if (room.cgroup_limit_bytes) {
    text += fmt::format(", the cgroup's limit {} with {} left", *room.cgroup_limit_bytes,
                        *room.cgroup_room_bytes);
  }
  if (over_file_limit) {
    text += fmt::format(", the file size limit (RLIMIT_FSIZE) {}", *room.file_size_limit_bytes);
  }
  return {Code::kExhausted, text + ": free memory or raise the limit, then retry"};
}

}  // namespace changeover::os
