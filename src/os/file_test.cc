#include "os/file.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/entropy.h"
#include "os/error.h"

namespace changeover::os {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/changeover-os-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      all.insert(entry.path().filename());
    }
    return all;
  }
  std::string folder_;
  const std::vector<std::byte> bytes_{std::byte{'a'}, std::byte{'b'}};
};

TEST_F(Files, AtomicFileAppearsWholeOrNotAtAll) {
  const std::string path = folder_ + "/x";
  {
    const auto file = AtomicFile::create(path).take();
    ASSERT_TRUE(file->write(bytes_).ok());
    EXPECT_EQ(names().count("x"), 0u);
  }
  EXPECT_TRUE(names().empty());
  const auto file = AtomicFile::create(path).take();
  ASSERT_TRUE(file->write(bytes_).ok());
  ASSERT_TRUE(file->write(bytes_).ok());
  EXPECT_EQ(file->bytes_written(), 4u);
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(file->commit().code(), Code::kInvalidArgument);
  EXPECT_EQ(names(), std::set<std::string>{"x"});
  EXPECT_EQ(*read_file(path, 100), "abab");
  ASSERT_TRUE(write_file_atomically(path, bytes_).ok());  // over the old one
  EXPECT_EQ(*read_file(path, 100), "ab");
}

// So that a process that is killed leaves nothing: the file has no name before it is whole.
TEST_F(Files, S4_NothingIsInTheFolderWhileAFileIsWritten) {
  const std::string path = folder_ + "/x";
  ASSERT_TRUE(write_file_atomically(path, bytes_).ok());
  const auto file = AtomicFile::create(path).take();
  ASSERT_TRUE(file->write(bytes_).ok());
  ASSERT_TRUE(file->write(bytes_).ok());
  EXPECT_EQ(names(), std::set<std::string>{"x"});
  EXPECT_EQ(*read_file(path, 100), "ab");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*read_file(path, 100), "abab");
}

TEST_F(Files, FolderThatIsNotThereIsNamed) {
  const Status status = write_file_atomically(folder_ + "/none/x", bytes_);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/none/x: create: No such file"));
}

TEST_F(Files, RenameOntoAFolderFailsAndLeavesNothing) {
  std::filesystem::create_directory(folder_ + "/x");
  EXPECT_FALSE(write_file_atomically(folder_ + "/x", bytes_).ok());
  EXPECT_EQ(names(), std::set<std::string>{"x"});
}

TEST_F(Files, ReadFileHasACeiling) {
  ASSERT_TRUE(write_file_atomically(folder_ + "/x", std::vector<std::byte>(40'000)).ok());
  EXPECT_EQ(read_file(folder_ + "/x", 40'000)->size(), 40'000u);
  const Status status = read_file(folder_ + "/x", 39'999).status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("longer than the 39999 bytes allowed"));
  EXPECT_EQ(read_file(folder_ + "/none", 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_file(folder_, 10).status().code(), Code::kInvalidArgument);
}

TEST(Entropy, IncarnationsDiffer) {
  std::set<Incarnation> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(draw_incarnation().take());
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Errors, CodesSayWhatToDoNext) {
  EXPECT_EQ(os_error("x", ENOSPC).code(), Code::kExhausted);
  EXPECT_EQ(os_error("x", EMFILE).code(), Code::kExhausted);
  EXPECT_EQ(os_error("x", ENOENT).code(), Code::kInvalidArgument);
  EXPECT_EQ(os_error("x", EACCES).code(), Code::kRefused);
  EXPECT_EQ(os_error("x", ECONNRESET).code(), Code::kUnavailable);
  EXPECT_EQ(os_error("open", ENOENT).message(), "open: No such file or directory (errno 2)");
  EXPECT_EQ(duration_text(40'400'000), "40 ms");
  EXPECT_EQ(duration_text(1'500'000'000), "1.5 s");
  EXPECT_EQ(duration_text(10'400'000'000), "10 s");
}

}  // namespace
}  // namespace changeover::os
