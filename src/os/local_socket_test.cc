#include "os/local_socket.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "os/poll.h"
#include "os/socket.h"

namespace changeover::os {
namespace {

using std::chrono::seconds;

class LocalSocketTest : public testing::Test {
 protected:
  LocalSocketTest() {
    std::string pattern = testing::TempDir() + "changeover-os-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = (folder_ / "admin").string();
  }
  ~LocalSocketTest() override { std::filesystem::remove_all(folder_); }
  Instant soon() const { return clock_.now() + seconds(5); }

  SystemClock clock_;
  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(LocalSocketTest, S4_OwnersOnlyAndGoneWithItsOwner) {
  {
    auto listener = PathListener::listen(path_);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    const PathListener moved = std::move(listener).take();
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_TRUE(dial_path(path_, clock_, soon()).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(dial_path(path_, clock_, soon()).status().code(), Code::kUnavailable);
}

TEST_F(LocalSocketTest, AStaleSocketIsReplacedOneInUseIsNot) {
  {
    const Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, path_.size());
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }  // A process that was killed leaves just this.
  ASSERT_TRUE(std::filesystem::exists(path_));
  const auto first = PathListener::listen(path_);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto second = PathListener::listen(path_);
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find(path_ + " in use"), std::string::npos);
  EXPECT_TRUE(dial_path(path_, clock_, soon()).ok()) << "the first one still listens";
}

TEST_F(LocalSocketTest, WhatIsNoSocketStaysAsItIs) {
  std::ofstream(path_) << "mine";
  EXPECT_EQ(PathListener::listen(path_).status().code(), Code::kRefused);
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(LocalSocketTest, APathTooLongIsRefusedWithBothNumbers) {
  const auto listener = PathListener::listen("/tmp/" + std::string(200, 'x'));
  EXPECT_EQ(listener.status().code(), Code::kInvalidArgument);
  EXPECT_NE(listener.status().message().find("205 bytes, 1 to 107"), std::string::npos);
}

TEST_F(LocalSocketTest, ASuccessorsSocketIsNotUnlinked) {
  auto first = PathListener::listen(path_);
  ASSERT_TRUE(first.ok());
  std::filesystem::remove(path_);
  const auto second = PathListener::listen(path_);
  ASSERT_TRUE(second.ok());
  { const PathListener end = std::move(first).take(); }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(LocalSocketTest, ReadsAndWritesWhatGoesAtOnce) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  std::byte buffer[64];
  EXPECT_EQ(*read_some(pair->first, buffer), std::nullopt);
  const std::byte word[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_EQ(*write_some(pair->second, word), 3u);
  EXPECT_EQ(*read_some(pair->first, buffer), std::optional<size_t>(3));
  const std::vector<std::byte> much(64 << 20);
  EXPECT_LT(*write_some(pair->second, much), much.size());
  EXPECT_EQ(*write_some(pair->second, much), 0u) << "full";
  pair->first.reset();
  EXPECT_FALSE(write_some(pair->second, word).ok());
}

TEST_F(LocalSocketTest, AClosedPeerReadsAsZero) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  pair->second.reset();
  std::byte buffer[8];
  EXPECT_EQ(*read_some(pair->first, buffer), std::optional<size_t>(0));
}

}  // namespace
}  // namespace changeover::os
