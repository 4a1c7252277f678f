#include "transport/file/file_road.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/contract_kit.h"

namespace changeover::transport {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const std::vector<uint32_t> kFile = {0};

// A folder of its own, gone with the test.
struct Folder {
  Folder() {
    char name[] = "/tmp/changeover-file-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) {
      ++count;
    }
    return count;
  }
  std::string path;
};

TEST(FileRoad, AppearsUnderItsNameOnlyWhenFinished) {
  const Folder folder;
  const std::string path = folder.path + "/stream";
  {
    FileSendRoad road(path);
    ASSERT_TRUE(road.open_stream(kFile, 1).ok());
    ASSERT_TRUE(send_parts(road, 1, {32, 50, 100'000}, seconds(5), false).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    // Nothing, or a temporary name where the file system has no unnamed files.
    EXPECT_LE(folder.files(), 1u);
  }
  EXPECT_EQ(folder.files(), 0u);  // A recording that was not finished leaves nothing.
  FileSendRoad road(path);
  ASSERT_TRUE(road.open_stream(kFile, 1).ok());
  ASSERT_TRUE(send_parts(road, 1, {32, 50, 100'000}, seconds(5), false).ok());
  ASSERT_TRUE(road.finish().ok());
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 100'082u);  // the plain stream, nothing added
  EXPECT_EQ(road.finish().code(), Code::kUnavailable);
}

TEST(FileRoad, RecordingThatFailsKeepsTheOldFile) {
  const Folder folder;
  const std::string path = folder.path + "/stream";
  ASSERT_TRUE(os::write_file_atomically(path, pattern_bytes(3, 0, 10)).ok());
  FileSendRoad road(path);
  ASSERT_TRUE(road.open_stream(kFile, 1).ok());
  ASSERT_TRUE(send_parts(road, 1, {32}, seconds(5), false).ok());
  road.drop(0, Status(Code::kAborted, "the update failed"));
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 10u);
}

// Records more than there is room for, in a child whose disk is small; returns what was wrong.
std::string record_without_room(const std::string& folder, bool small_disk) {
  FileSendRoad road(folder + "/stream");
  if (Status open = road.open_stream(kFile, 1); !open.ok()) {
    return open.to_string();
  }
  const Status status = send_parts(road, 1, {32, 10, 3'000'000}, seconds(5), false);
  const std::string expected = small_disk ? "more bytes, 0 free on its file system"
                                          : "would grow to 3000042 bytes, the file size limit "
                                            "(RLIMIT_FSIZE) is 100000";
  if (status.code() != Code::kExhausted || status.message().find(expected) == std::string::npos) {
    return status.to_string();
  }
  if (!std::filesystem::is_empty(folder) || road.take_failures().size() != 1) {
    return "something was left";
  }
  // The road is not used up: a stream that fits is recorded.
  if (!road.open_stream(kFile, 2).ok() ||
      !send_parts(road, 2, {32, 10, 30'000}, seconds(5), false).ok() || !road.finish().ok()) {
    return "the next stream failed";
  }
  return "";
}

TEST(FileRoad, NoRoomIsAnErrorWithBothNumbersAndLeavesNothing) {
  const Folder folder;
  for (const bool small_disk : {true, false}) {
    const pid_t child = ::fork();  // Neither the mount nor the limit is to stay.
    if (child == 0) {
      bool mounted = false;
      if (small_disk && ::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) == 0 &&
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
        mounted = ::mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=1m") == 0;
      }
      const rlimit limit{100'000, 100'000};
      if (!mounted) {  // where no small disk can be had, the limit stands for it
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
      const std::string wrong = record_without_room(folder.path, mounted);
      std::fputs(wrong.c_str(), stderr);
      std::filesystem::remove(folder.path + "/stream");
      ::_exit(wrong.empty() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(FileRoad, ShortRecordingEndsWithTheNumbers) {
  const Folder folder;
  const std::string path = folder.path + "/stream";
  ASSERT_TRUE(os::write_file_atomically(path, pattern_bytes(1, 0, 40)).ok());
  const auto road = FileReceiveRoad::create(path).take();
  ASSERT_TRUE(road->open_stream(1).ok());
  EXPECT_EQ(road->bytes_left(), 40u);
  const Status status = receive_parts(*road, 1, {32, 100}, seconds(5), false);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("ends after 40 bytes, up to 92 more were due"));
}

TEST(FileRoad, OddFilesAreRefusedOrEmpty) {
  const Folder folder;
  EXPECT_EQ(FileReceiveRoad::create(folder.path + "/none").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(FileReceiveRoad::create(folder.path).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(os::write_file_atomically(folder.path + "/empty", {}).ok());
  const auto road = FileReceiveRoad::create(folder.path + "/empty").take();
  EXPECT_EQ(road->receive(Part::kHeader, 32, {}, in(seconds(1))).status().code(), Code::kCorrupt);
  FileSendRoad nowhere(folder.path + "/no/such/folder");
  EXPECT_EQ(nowhere.open_stream(kFile, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(nowhere.open_stream(std::vector<uint32_t>{0, 1}, 1).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace changeover::transport
