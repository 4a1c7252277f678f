#include "os/limits.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace changeover::os {
namespace {

using testing::HasSubstr;

// A made-up /proc and /sys.
class Limits : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/changeover-limits-XXXXXX";
    root_ = ::mkdtemp(name);
    put("/proc/meminfo", "MemTotal:  100 kB\nMemAvailable:    2000 kB\nSwapFree: 1 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(Limits, WithoutACgroupMemAvailableIsTheRoom) {
  const MemoryRoom room = read_memory_room(root_).take();
  EXPECT_EQ(room.available_bytes, 2'048'000u);
  EXPECT_FALSE(room.cgroup_limit_bytes);
  EXPECT_EQ(room.room_bytes(), 2'048'000u);
}

TEST_F(Limits, TheTightestCgroupOnTheWayUpHolds) {
  put("/proc/self/cgroup", "0::/pod/box\n");
  put("/sys/fs/cgroup/pod/box/memory.max", "max\n");
  put("/sys/fs/cgroup/pod/memory.max", "1000000\n");
  put("/sys/fs/cgroup/pod/memory.current", "700000\n");
  put("/sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 200000\n");
  put("/sys/fs/cgroup/memory.max", "9000000\n");
  const MemoryRoom room = read_memory_room(root_).take();
  EXPECT_EQ(room.cgroup_limit_bytes, 1'000'000u);
  EXPECT_EQ(room.cgroup_room_bytes, 500'000u);  // what the kernel can take back counts as room
  EXPECT_EQ(room.room_bytes(), 500'000u);
}

TEST_F(Limits, VersionOneIsReadAndItsNoLimitIsNone) {
  put("/proc/self/cgroup", "5:cpu:/\n4:memory:/job\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(read_memory_room(root_)->cgroup_limit_bytes);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n");
  EXPECT_EQ(read_memory_room(root_)->cgroup_room_bytes, 0u);
}

TEST_F(Limits, NoMemAvailableIsSaid) {
  put("/proc/meminfo", "MemTotal: 100 kB\n");
  EXPECT_THAT(read_memory_room(root_).status().message(), HasSubstr("no MemAvailable"));
}

TEST(CheckMemoryRoom, RefusesWithEveryNumber) {
  const MemoryRoom room{1000, 900, 500, 300};
  EXPECT_TRUE(check_memory_room(room, 500, "a ring", false).ok());
  EXPECT_EQ(check_memory_room(room, 500, "a ring", true).code(), Code::kExhausted);
  const Status status = check_memory_room(room, 501, "a ring", true);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_EQ(status.message(),
            "a ring needs 501 bytes; MemAvailable is 1000, the cgroup's limit 900 with 500 left, "
            "the file size limit (RLIMIT_FSIZE) 300: free memory or raise the limit, then retry");
}

TEST(MemoryRoom, ThisMachineHasSome) {
  EXPECT_GT(read_memory_room()->room_bytes(), 1u << 20);
}

}  // namespace
}  // namespace changeover::os
