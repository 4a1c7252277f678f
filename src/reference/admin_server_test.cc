#include "reference/admin_server.h"

#include <filesystem>
#include <vector>

#include <changeover/admin.h>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "os/clock.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"
#include "reference/fake_testing.h"

namespace changeover::reference {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AdminServerTest : public testing::Test {
 protected:
  AdminServerTest() {
    std::string pattern = testing::TempDir() + "changeover-admin-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.path = (folder_ / "admin").string();
  }
  ~AdminServerTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  void start() {
    auto server = AdminServer::start(
        options_, [](std::string_view line) { return "<" + std::string(line) + ">"; },
        [](const Status& status) { return status.message(); });
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(server).take();
  }
  os::Fd dial() { return os::dial_path(options_.path, clock_, deadline()).take(); }
  Instant deadline() const { return clock_.now() + seconds(10); }
  void send(const os::Fd& fd, std::string_view text) {
    ASSERT_TRUE(
        os::send_all(fd, std::as_bytes(std::span(text)), clock_, deadline(), "server").ok());
  }
  // Reads until the server has closed, or `bytes` are there.
  std::string receive(const os::Fd& fd, size_t bytes = SIZE_MAX) {
    std::string text;
    std::byte buffer[4096];
    while (text.size() < bytes && os::wait_readable(fd, clock_, deadline(), "server").ok()) {
      const auto got = os::read_some(fd, buffer);
      if (!got.ok() || *got == size_t{0}) {
        break;
      }
      text.append(reinterpret_cast<const char*>(buffer), got->value_or(0));
    }
    return text;
  }

  os::SystemClock clock_;
  std::filesystem::path folder_;
  AdminServerOptions options_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, AnswersLineByLine) {
  start();
  EXPECT_EQ(*admin_request("unix:" + options_.path, "one", seconds(10)), "<one>");
  EXPECT_EQ(*admin_request(options_.path, "two", seconds(10)), "<two>");
  const os::Fd fd = dial();
  send(fd, "a\nb\n");
  send(fd, "c");
  EXPECT_EQ(receive(fd, 8), "<a>\n<b>\n");
  send(fd, "d\n");
  EXPECT_EQ(receive(fd, 5), "<cd>\n");
}

TEST_F(AdminServerTest, AReplyLargerThanTheSocketsBufferArrivesWhole) {
  const std::string large(8 << 20, 'x');
  auto server = AdminServer::start(
      options_, [&](std::string_view) { return large; }, [](const Status&) { return ""; });
  ASSERT_TRUE(server.ok());
  const auto reply = admin_request(options_.path, "all", seconds(10));
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(*reply, large);
}

TEST_F(AdminServerTest, S2_ALineTooLongIsAnsweredAndEnds) {
  start();
  const os::Fd fd = dial();
  send(fd, std::string(5000, 'x'));
  EXPECT_EQ(receive(fd), "request line of more than 4096 bytes\n");
  EXPECT_EQ(*admin_request(options_.path, "still here", seconds(10)), "<still here>");
}

TEST_F(AdminServerTest, S2_OneConnectionTooManyIsToldSo) {
  options_.connections_max = 2;
  start();
  const os::Fd first = dial();
  const os::Fd second = dial();
  send(first, "a\n");
  send(second, "b\n");
  EXPECT_EQ(receive(first, 4), "<a>\n");
  EXPECT_EQ(receive(second, 4), "<b>\n");
  const os::Fd third = dial();
  EXPECT_EQ(receive(third), "2 connections are open already: close one\n");
}

TEST_F(AdminServerTest, S2_ThoseThatSayNothingKeepNobodyOut) {
  options_.connections_max = 2;
  start();
  const os::Fd asked = dial();
  send(asked, "a\n");
  EXPECT_EQ(receive(asked, 4), "<a>\n");
  std::vector<os::Fd> mute;
  for (int i = 0; i < 5; ++i) {
    mute.push_back(dial());
    send(mute.back(), "half a li");
    EXPECT_EQ(*admin_request(options_.path, "x", seconds(10)), "<x>");
  }
  EXPECT_EQ(receive(mute.front()), "");
  send(asked, "b\n");
  EXPECT_EQ(receive(asked, 4), "<b>\n") << "who has asked before stays";
}

TEST_F(AdminServerTest, R7_APeerThatConnectsAndSaysNothingIsClosed) {
  options_.idle_timeout = milliseconds(50);
  start();
  const os::Fd fd = dial();
  EXPECT_EQ(receive(fd), "");
  EXPECT_EQ(*admin_request(options_.path, "x", seconds(10)), "<x>");
}

TEST_F(AdminServerTest, APeerThatHangsUpInTheMiddleHarmsNobody) {
  start();
  for (int i = 0; i < 40; ++i) {
    send(dial(), "half a li");
  }
  EXPECT_TRUE(eventually([&] {
    return admin_request(options_.path, "x", seconds(10)).ok() &&
           *admin_request(options_.path, "x", seconds(10)) == "<x>";
  }));
}

TEST_F(AdminServerTest, APathInUseIsRefused) {
  start();
  const auto second = AdminServer::start(options_, {}, {});
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_EQ(*admin_request(options_.path, "x", seconds(10)), "<x>");
}

TEST_F(AdminServerTest, TheClientSaysWhatItMissed) {
  EXPECT_EQ(admin_request(options_.path, "x", seconds(1)).status().code(), Code::kUnavailable);
  EXPECT_EQ(admin_request(options_.path, "a\nb", seconds(1)).status().code(),
            Code::kInvalidArgument);
  const auto mute = os::PathListener::listen(options_.path);
  ASSERT_TRUE(mute.ok());
  const auto late = admin_request(options_.path, "x", milliseconds(50));
  EXPECT_EQ(late.status().code(), Code::kDeadline);
  EXPECT_NE(late.status().message().find(options_.path), std::string::npos);
}

}  // namespace
}  // namespace changeover::reference
