// What knocks at a publisher: strangers, wrong tokens, other jobs, messages out of place. Each is
// refused with its reason in the log, and ranks are served all the while.
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/codec.h"
#include "control/handshake.h"
#include "os/socket.h"
#include "tests/e2e/child.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Guarded : public testing::Test {
 protected:
  Guarded() {
    options_ = publisher_options("tcp");
    options_.token = "secret";
    options_.log = log_.sink();
    options_.deadlines = short_deadlines();
    publisher_ = open_publisher(options_);
  }
  RankOptions rank(const std::string& token) const {
    RankOptions out;
    out.subscriber.token = token;
    out.subscriber.deadlines = short_deadlines();
    return out;
  }
  bool logged(const std::string& text) const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (!log_.has(text) && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    return log_.has(text);
  }
  os::Fd dial() {
    return os::dial_tcp("127.0.0.1", publisher_->endpoint().port, clock_, clock_.now() + 5s).take();
  }
  void say(const os::Fd& fd, std::span<const uint8_t> bytes) {
    EXPECT_TRUE(os::send_all(fd, std::as_bytes(bytes), clock_, clock_.now() + 5s, "it").ok());
  }
  // A control connection that knows the token, and its data connection where asked for.
  control::SessionId prove(const os::Fd& fd, control::Role role, const control::SessionId& named) {
    control::ClientHandshake handshake("secret", role, named, {});
    std::vector<uint8_t> request;
    handshake.start(request);
    while (!request.empty()) {
      say(fd, request);
      request.clear();
      std::vector<uint8_t> answer(handshake.wants());
      EXPECT_TRUE(os::receive_all(fd, std::as_writable_bytes(std::span(answer)), clock_,
                                  clock_.now() + 5s, "it")
                      .ok());
      EXPECT_TRUE(handshake.take(answer, request).ok());
    }
    return handshake.session();
  }
  void say_frame(const os::Fd& fd, const std::vector<uint8_t>& body) {
    std::vector<uint8_t> frame = {uint8_t(body.size()), uint8_t(body.size() >> 8), 0, 0};
    frame.insert(frame.end(), body.begin(), body.end());
    say(fd, frame);
  }
  void expect_served(int64_t version) {
    Rank good(model_, publisher_->endpoint(), rank("secret"));
    const auto report = publisher_->publish(*model_.source(version), publish_options(version, 1));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->status.ok()) << report->status.to_string();
    EXPECT_TRUE(good.serves(version) && good.holds(version));
  }

  const Model model_{true};
  Log log_;
  PublisherOptions options_;
  std::unique_ptr<Publisher> publisher_;
  os::SystemClock clock_;
};

TEST_F(Guarded, S1_CaseB56_WrongAndMissingTokensAreToldToBothSides) {
  for (const auto& [token, why] : {std::pair{"guess", "wrong token"},
                                   std::pair{"", "asks for a token and the rank has none"}}) {
    Rank stranger(model_, publisher_->endpoint(), rank(token), false);
    const auto result = stranger->receive(10s);
    EXPECT_EQ(result.status().code(), Code::kRefused);
    EXPECT_THAT(result.status().message(), HasSubstr(why));
    EXPECT_TRUE(logged(why));
  }
  EXPECT_FALSE(log_.has("secret")) << "the token itself is never logged";
  expect_served(1);
}

TEST_F(Guarded, S3_CaseB56_StrangersAreRefusedAndOthersServed) {
  const std::vector<std::string> texts = {"GET / HTTP/1.1\r\n\r\n", "\x80\x04\x95\x10\x00",
                                          "\xFF\xFF\xFF\xFF", "{\"jsonrpc\":[1,2,3"};
  std::vector<os::Fd> strangers;
  for (const auto& text : texts) {
    strangers.push_back(dial());
    say(strangers.back(), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  strangers.push_back(dial());  // says nothing at all
  EXPECT_TRUE(logged("not those of a changeover peer"));
  expect_served(1);
  EXPECT_TRUE(logged("handshake not finished after"));
}

TEST_F(Guarded, S2_CaseB56_LengthsAndTypesOfProvedPeersAreCheckedToo) {
  const os::Fd huge = dial();
  prove(huge, control::Role::kControl, {});
  say(huge, std::vector<uint8_t>{0xFF, 0xFF, 0xFF, 0xFF});
  EXPECT_TRUE(logged("a frame of 4294967295 bytes"));

  const os::Fd unknown = dial();
  const auto session = prove(unknown, control::Role::kControl, {});
  const os::Fd data = dial();
  prove(data, control::Role::kData, session);
  say_frame(unknown, {0x9A, 0x06, 0x00});
  EXPECT_TRUE(logged("unknown type (field number 99)"));

  const os::Fd early = dial();
  prove(early, control::Role::kControl, {});
  say_frame(early, control::encode(protocol::Welcome{}));
  EXPECT_TRUE(logged("out of place"));
  expect_served(1);
}

TEST_F(Guarded, CaseB56_AMessageBeforeTheHelloIsOutOfPlace) {
  const os::Fd control = dial();
  const auto session = prove(control, control::Role::kControl, {});
  const os::Fd data = dial();
  prove(data, control::Role::kData, session);
  say_frame(control, control::encode(protocol::Vote{}));
  EXPECT_TRUE(logged("rank let go"));
  expect_served(1);
}

TEST_F(Guarded, CaseN10_ARankOfAnotherJobIsRefusedByName) {
  auto other = rank("secret");
  other.subscriber.job = "other-job";
  Rank foreign(model_, publisher_->endpoint(), other, false);
  const auto result = foreign->receive(10s);
  EXPECT_EQ(result.status().code(), Code::kRefused) << result.status().to_string();
  EXPECT_THAT(result.status().message(), HasSubstr("other-job"));
  EXPECT_THAT(result.status().message(), HasSubstr("default"));
  expect_served(1);
}

TEST(Publishers, CaseN10_TwoJobsOnOneHostKeepApart) {
  const Model model(true);
  auto options = publisher_options("shm");
  auto first = open_publisher(options);
  options.job = "second";  // The same name: no clash, and nobody meets.
  auto second = open_publisher(options);
  RankOptions of_second;
  of_second.subscriber.job = "second";
  Rank a(model, first->endpoint(), {});
  Rank b(model, second->endpoint(), of_second);
  ASSERT_TRUE(first->publish(*model.source(1), publish_options(1, 1))->status.ok());
  ASSERT_TRUE(second->publish(*model.source(2), publish_options(2, 1))->status.ok());
  EXPECT_TRUE(a.serves(1) && a.holds(1) && b.serves(2) && b.holds(2));
  EXPECT_EQ(first->peers().size(), 1u);
}

TEST(Publishers, CaseB57_ASecondPublisherIsToldThatTheAddressIsInUse) {
  for (const char* road : {"tcp", "shm"}) {
    auto options = publisher_options(road);
    auto first = open_publisher(options);
    options.endpoint = first->endpoint();
    const auto second = Publisher::open(options);
    EXPECT_EQ(second.status().code(), Code::kUnavailable) << road;
    EXPECT_THAT(second.status().message(), HasSubstr("address in use"));
  }
}

// Case B56: one process of the same user opens connections by the thousand. It crowds out itself.
TEST(Publishers, S2_CaseB56_AFloodOfConnectionsKeepsNoRankOut) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options("shm"));
  Process flood({"flood", publisher->endpoint().to_string()});
  ASSERT_EQ(flood.line(), "flooding");
  RankOptions half;
  half.tp = 2;
  Rank first(model, publisher->endpoint(), half);
  half.rank = 1;
  Rank second(model, publisher->endpoint(), half);
  const auto report = publisher->publish(*model.source(1), publish_options(1, 2));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->status.ok()) << report->status.to_string();
  EXPECT_TRUE(first.serves(1) && second.serves(1));
  EXPECT_EQ(first.log().all() + second.log().all(), "") << "neither was turned away";
}

TEST(Publishers, R7_WaitingForRanksNamesWhoIsMissing) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options("tcp"));
  RankOptions half;
  half.tp = 2;
  Rank first(model, publisher->endpoint(), half);
  auto how = publish_options(1, 2);
  how.ranks_timeout = 300ms;
  const auto report = publisher->publish(*model.source(1), how);
  EXPECT_EQ(report.status().code(), Code::kDeadline);
  EXPECT_THAT(report.status().message(), HasSubstr("a/1"));
}

TEST(Publishers, R7_WaitingForRanksSaysWhoWasRefusedLastAndWhy) {
  const Model model(true);
  auto options = publisher_options("tcp");
  options.token = "secret";
  auto publisher = open_publisher(options);
  RankOptions guess;
  guess.subscriber.token = "guess";
  Rank stranger(model, publisher->endpoint(), guess);  // dials again and again
  Status waited;
  do {
    waited = publisher->wait_for_ranks(1, 50ms);
    ASSERT_EQ(waited.code(), Code::kDeadline);
  } while (waited.message().find("last refused: 127.0.0.1:") == std::string::npos);
  EXPECT_THAT(waited.message(), HasSubstr("wrong token"));
}

TEST(Publishers, ARankThatWasRefusedForAnothersMistakeComesBackWhenThatIsMended) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options("tcp"));
  RankOptions two;
  two.tp = 2;
  RankOptions mistaken;
  mistaken.rank = 1;
  mistaken.tp = 4;
  auto wrong = std::make_unique<Rank>(model, publisher->endpoint(), mistaken);
  ASSERT_TRUE(publisher->wait_for_ranks(0, 0s).ok());
  while (publisher->peers().empty()) {
    std::this_thread::yield();
  }
  Rank first(model, publisher->endpoint(), two);
  while (!first.log().has("says its engine has 2 ranks, rank 1 says 4")) {
    std::this_thread::yield();
  }
  wrong.reset();
  two.rank = 1;
  Rank second(model, publisher->endpoint(), two);
  const auto report = publisher->publish(*model.source(1), publish_options(1, 2));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(first.serves(1) && second.serves(1));
}

// The caller's log may ask the publisher who is there, and may throw: neither stops anything.
TEST(Publishers, CaseB02_ALogThatAsksForPeersAndThrows) {
  const Model model(true);
  std::mutex mutex;
  const Publisher* open = nullptr;  // Guarded by mutex.
  std::atomic<int> asked{0};
  auto options = publisher_options("tcp");
  options.log = [&](std::string_view) {
    const std::lock_guard lock(mutex);
    if (open != nullptr) {
      (void)open->peers();
      ++asked;
    }
    throw std::runtime_error("the log is full");
  };
  auto publisher = open_publisher(options);
  const auto let_ask = [&](const Publisher* whom) {
    const std::lock_guard lock(mutex);
    open = whom;
  };
  let_ask(publisher.get());
  RankOptions foreign;
  foreign.subscriber.job = "other";
  Rank refused(model, publisher->endpoint(), foreign);
  while (asked == 0) {
    std::this_thread::yield();
  }
  Rank rank(model, publisher->endpoint(), {});
  EXPECT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  EXPECT_TRUE(rank.serves(1));
  let_ask(nullptr);
}

TEST(Publishers, ASecondPublishAtTheSameTimeIsBusy) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options("tcp"));
  Rank only(model, publisher->endpoint(), {});
  auto how = publish_options(1, 1);
  Status second;
  how.on_progress = [&](uint64_t, uint64_t) {
    second = publisher->publish(*model.source(2), publish_options(2, 1)).status();
  };
  EXPECT_TRUE(publisher->publish(*model.source(1), how)->status.ok());
  EXPECT_EQ(second.code(), Code::kRefused);
  EXPECT_THAT(second.message(), HasSubstr("busy"));
}

}  // namespace
}  // namespace changeover::e2e
