// Listener and dialer over real sockets: frames, deadlines, addresses.
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "control/channel_testing.h"

namespace changeover::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::HasSubstr;

class ChannelOver : public ::testing::TestWithParam<const char*> {};

TEST_P(ChannelOver, FramesBothWaysAndADataConnection) {
  ChannelOptions options;
  options.token = "secret";
  Publisher publisher(options, GetParam());
  Rank rank(publisher.listener->endpoint(), options);
  ASSERT_NE(rank.seen.wait("data 1"), "");
  rank.dialer->send(1, bytes("hello"));
  EXPECT_NE(publisher.seen.wait("frame 1 hello"), "");
  publisher.listener->send(1, bytes(std::string(1 << 20, 'x')));  // exactly the ceiling
  EXPECT_NE(rank.seen.wait("frame 1 xxx"), "");
  ASSERT_NE(publisher.seen.wait("data 1"), "");
  const os::Fd ours = publisher.seen.take_data();
  const os::Fd theirs = rank.seen.take_data();
  ASSERT_EQ(::write(theirs.get(), "raw", 3), 3);
  char raw[3];
  os::SystemClock clock;
  EXPECT_TRUE(
      os::receive_all(ours, std::as_writable_bytes(std::span(raw)), clock, clock.now() + 5s, "rank")
          .ok());
  EXPECT_EQ(std::string_view(raw, 3), "raw");
}

INSTANTIATE_TEST_SUITE_P(Roads, ChannelOver,
                         ::testing::Values("tcp:127.0.0.1:0", "tcp:[::1]:0", "shm:channel_test"),
                         [](const auto& road) {
                           const std::string text(road.param);
                           return text.substr(0, 3) + (text[4] == '[' ? "6" : "");
                         });

TEST(Channel, S3_AClosedPeerIsNamedAndTheRankDialsAgain) {
  Publisher publisher;
  Rank rank(publisher.listener->endpoint());
  ASSERT_NE(publisher.seen.wait("data 1"), "");
  publisher.listener->close(1);
  EXPECT_NE(rank.seen.wait("closed 1"), "");
  EXPECT_NE(rank.seen.wait("data 2"), "");
  EXPECT_NE(publisher.seen.wait("data 2"), "");
  EXPECT_EQ(publisher.seen.count("closed 1"), 0) << "we closed it ourselves";
  // What is meant for the ended connection reaches no other.
  rank.dialer->send(1, bytes("stale"));
  rank.dialer->close(1, true);
  rank.dialer->send(2, bytes("fresh"));
  EXPECT_EQ(publisher.seen.wait("frame"), "frame 2 fresh");
  EXPECT_EQ(publisher.seen.count("closed 2"), 0);
}

// A rank whose place is taken connects well enough, and is refused by a message every time.
TEST(Channel, TheBackOffGrowsUntilThePeerHasTakenTheRank) {
  Publisher publisher;
  auto options = dial_options(publisher.listener->endpoint());
  options.back_off_min = 20ms;
  Rank rank(options);
  const auto start = std::chrono::steady_clock::now();
  PeerId peer = 1;
  for (; peer <= 6; ++peer) {
    ASSERT_NE(publisher.seen.wait("data " + std::to_string(peer)), "");
    publisher.listener->close(peer);
  }
  // Five waits: at least half of 20, 40, 80, 160 and 320 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - start, 310ms);
  ASSERT_NE(publisher.seen.wait("data 7"), "");
  rank.dialer->settled();
  publisher.listener->close(peer);
  EXPECT_NE(publisher.seen.wait("data 8"), "");
}

// A publisher that ends right after a release: bytes of the rank's that it never read must not
// take the release back, and a rank that reads nothing must not hold it up.
TEST(Channel, V6_WhatWasSentLastIsReadBeforeTheConnectionGoes) {
  Publisher publisher;
  Stranger late(publisher.listener->endpoint(), /*receive_buffer_bytes=*/16 << 10);
  late.prove("");
  ASSERT_NE(publisher.seen.wait("open 1"), "");
  const std::string large(32 << 10, 'x');
  for (int i = 0; i < 8; ++i) {
    publisher.listener->send(1, bytes(large));  // More than the kernel has room for over there.
  }
  publisher.listener->send(1, bytes("release"));
  std::promise<void> closed;
  publisher.listener->close_all([&] { closed.set_value(); });
  for (int i = 0; i < 8; ++i) {
    late.say(std::string_view("\0\0\0\0", 4));
  }
  EXPECT_THAT(late.hear_all(), ::testing::EndsWith("release"));
  late.close();
  EXPECT_EQ(closed.get_future().wait_for(10s), std::future_status::ready);
}

TEST(Channel, R7_APeerThatDoesNotReadIsNotWaitedForWhenAllAreClosed) {
  ChannelOptions options;
  options.heartbeat = 50ms;
  Publisher publisher(options);
  Stranger stopped(publisher.listener->endpoint());
  stopped.prove("");
  ASSERT_NE(publisher.seen.wait("open 1"), "");
  std::promise<void> closed;
  publisher.listener->close_all([&] { closed.set_value(); });
  EXPECT_EQ(closed.get_future().wait_for(10s), std::future_status::ready);
}

TEST(Channel, ADeadPeersConnectionEnds) {
  Publisher publisher;
  {
    Rank rank(publisher.listener->endpoint());
    ASSERT_NE(publisher.seen.wait("data 1"), "");
    rank.loop.stop();
    rank.dialer.reset();
  }
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("connection ended"));
}

TEST(Channel, R7_ARankWaitsForItsWelcomeUntilADeadline) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.handshake = 100ms;
  Publisher publisher;
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_NE(rank.seen.wait("data 1"), "");
  rank.dialer->send(1, bytes("hello"));
  EXPECT_THAT(rank.seen.wait("closed 1"), HasSubstr("s for its first message"));
  EXPECT_NE(rank.seen.wait("data 2"), "") << "and dials again";
}

TEST(Channel, R7_HeartbeatsKeepAQuietConnection) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.silence = 200ms;
  Publisher publisher(options);
  Rank rank(publisher.listener->endpoint(), options);
  ASSERT_NE(publisher.seen.wait("data 1"), "");
  Stranger silent(publisher.listener->endpoint());
  silent.prove("");
  ASSERT_NE(publisher.seen.wait("closed 2"), "") << "the clock of this test";
  EXPECT_EQ(publisher.seen.count("closed 1"), 0);
}

TEST(Channel, CaseB57_ASecondListenerIsTold) {
  Publisher first;
  Recorder seen;
  Loop loop;
  const auto second = Listener::open(first.listener->endpoint(), {}, loop, seen, entropy);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("address in use"));
  EXPECT_THAT(second.status().message(),
              HasSubstr(std::to_string(first.listener->endpoint().port)));
  Publisher shm({}, "shm:b57");
  const auto again = Listener::open(*Endpoint::parse("shm:b57"), {}, loop, seen, entropy);
  EXPECT_THAT(again.status().message(), HasSubstr("address in use"));
}

TEST(Channel, CaseB57_OnlyTheGivenAddressIsBoundAndPort0IsTold) {
  Publisher publisher;
  const Endpoint& endpoint = publisher.listener->endpoint();
  EXPECT_NE(endpoint.port, 0);
  os::SystemClock clock;
  EXPECT_TRUE(os::dial_tcp("127.0.0.1", endpoint.port, clock, clock.now() + 5s).ok());
  EXPECT_FALSE(os::dial_tcp("127.0.0.2", endpoint.port, clock, clock.now() + 5s).ok());
}

TEST(Channel, S1_NoTokenMeansThisHostOnly) {
  Recorder seen;
  Loop loop;
  for (const char* at : {"tcp:0.0.0.0:0", "tcp:[::]:0"}) {
    const auto open = Listener::open(*Endpoint::parse(at), {}, loop, seen, entropy);
    EXPECT_EQ(open.status().code(), Code::kRefused) << at;
    EXPECT_THAT(open.status().message(), HasSubstr("set a token"));
  }
  EXPECT_EQ(Dialer::check(*Endpoint::parse("tcp:192.0.2.1:7"), {}).code(), Code::kRefused);
  ChannelOptions with_token;
  with_token.token = "secret";
  EXPECT_TRUE(Dialer::check(*Endpoint::parse("tcp:192.0.2.1:7"), with_token).ok());
}

// A name server that answers with these addresses, in this order.
os::SystemLookup answers(std::vector<const char*> addresses) {
  return [addresses](const char*, const char* port, const addrinfo* hints, addrinfo** list) {
    for (const char* address : addresses) {
      const int error = ::getaddrinfo(address, port, hints, list);
      if (error != 0) {
        return error;
      }
      list = &(*list)->ai_next;
    }
    return 0;
  };
}

TEST(Channel, EveryAddressOfANameIsTried) {
  Publisher publisher;
  Endpoint named = publisher.listener->endpoint();
  named.host = "trainer.example";
  auto options = dial_options(named);
  options.lookup = answers({"127.0.0.3", "127.0.0.2", "127.0.0.1"});
  Rank rank(options);
  EXPECT_NE(rank.seen.wait("data 1"), "");
  options.lookup = answers({"127.0.0.3", "127.0.0.2"});
  Rank nowhere(options);
  EXPECT_THAT(nowhere.seen.wait("refused"), HasSubstr("Connection refused"));
}

TEST(Channel, S1_ANameThatLeavesThisHostIsRefusedWheneverItIsLookedUp) {
  auto options = dial_options(*Endpoint::parse("tcp:trainer.example:7"));
  options.lookup = answers({"127.0.0.1", "192.0.2.1"});
  Rank rank(options);
  EXPECT_THAT(rank.seen.wait("refused"), HasSubstr("set a token"));
}

TEST(Channel, CaseN10_JobsOnOneHostDoNotMeet) {
  ChannelOptions a;
  a.job = "a";
  ChannelOptions b;
  b.job = "b";
  Publisher first(a, "shm:weights");
  Publisher second(b, "shm:weights");  // the same name, another job: no clash
  Rank rank(second.listener->endpoint(), b);
  EXPECT_NE(second.seen.wait("data 1"), "");
  EXPECT_EQ(first.seen.count("open"), 0);
}

TEST(Channel, B33_ShmNameIsFreeAgain) {
  for (int round = 0; round < 3; ++round) {
    Publisher publisher({}, "shm:again");
    expect_served(publisher);
  }
}

}  // namespace
}  // namespace changeover::control
