// Every kind of stranger that may knock at a listener, and peers that prove themselves and say
// nothing more (case B56; rules R7, S2): ranks are served all the while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/channel_testing.h"

namespace changeover::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::HasSubstr;

TEST(Strangers, R7_ASilentPeerIsFoundByItsHeartbeats) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.silence = 100ms;
  Publisher publisher(options);
  Stranger stopped(publisher.listener->endpoint());
  stopped.prove("");
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("no sign of life"));
}

// Whoever knows the token and then says nothing holds no place among the ranks, and a rank does not
// wait for ever for its welcome: both ends have a deadline for the first message.
TEST(Strangers, R7_S2_AProvedPeerThatOnlyBreathesIsLetGo) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.handshake = 100ms;
  Publisher publisher(options);
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("s for its first message"));
  EXPECT_NE(rank.seen.wait("closed 1"), "");
}

TEST(Strangers, CaseB56_WrongAndMissingTokenAreRefusedAndLogged) {
  ChannelOptions options;
  options.token = "secret";
  Publisher publisher(options);
  ChannelOptions wrong = options;
  wrong.token = "guess";
  Rank guesser(publisher.listener->endpoint(), wrong);
  EXPECT_THAT(guesser.seen.wait("refused"), HasSubstr("wrong token"));
  EXPECT_THAT(publisher.seen.wait("refused"), HasSubstr("wrong token"));
  Rank none(publisher.listener->endpoint());
  EXPECT_THAT(none.seen.wait("refused"), HasSubstr("asks for a token and the rank has none"));
  EXPECT_NE(publisher.seen.wait("the rank has none"), "");
  expect_served(publisher, options);
}

TEST(Strangers, CaseB56_StrangersAreRefusedAtTheirFirstByte) {
  Publisher publisher;
  const std::string_view texts[] = {"GET /update HTTP/1.1\r\n\r\n", "\x80\x04\x95\x10",
                                    "\xFF\xFF\xFF\xFF", "[1,1,1,1,1,1"};
  for (const std::string_view text : texts) {
    Stranger stranger(publisher.listener->endpoint());
    stranger.say(text);
    (void)stranger.hear_all();  // ends long before the deadline of 10 s
  }
  EXPECT_NE(publisher.seen.wait("not those of a changeover peer"), "");
  expect_served(publisher);
  EXPECT_EQ(publisher.seen.count("not those of a changeover peer"), 4);
}

TEST(Strangers, CaseB56_APeerThatSaysNothingMeetsTheDeadline) {
  ChannelOptions options;
  options.handshake = 50ms;
  Publisher publisher(options);
  Stranger silent(publisher.listener->endpoint());
  Stranger half(publisher.listener->endpoint());
  half.say(std::span(kMagic).first(5));
  (void)silent.hear_all();
  (void)half.hear_all();
  EXPECT_THAT(publisher.seen.wait("0 of 64 bytes came"), HasSubstr("not finished after 50 ms"));
  EXPECT_NE(publisher.seen.wait("5 of 64 bytes came"), "");
  expect_served(publisher);
}

TEST(Strangers, CaseB56_ATruncatedHandshakeIsNamed) {
  Publisher publisher;
  Stranger stranger(publisher.listener->endpoint());
  stranger.say(std::span(kMagic).first(5));
  stranger.close();
  EXPECT_NE(publisher.seen.wait("ended after"), "");
  expect_served(publisher);
}

TEST(Strangers, CaseB56_A4GiBLengthIsRefusedBeforeItIsRead) {
  Publisher publisher;
  Stranger stranger(publisher.listener->endpoint());
  stranger.prove("");
  stranger.say("\xFF\xFF\xFF\xFF");
  EXPECT_THAT(publisher.seen.wait("closed 1"),
              HasSubstr("a frame of 4294967295 bytes, at most 1048576 are taken"));
  expect_served(publisher);
}

TEST(Strangers, CaseB56_ATruncatedFrameIsNamed) {
  Publisher publisher;
  Stranger stranger(publisher.listener->endpoint());
  stranger.prove("");
  stranger.say(
      std::string_view("\x0A\x00\x00\x00"
                       "abc",
                       7));
  stranger.close();
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("after 3 of a frame's 10 bytes"));
  expect_served(publisher);
}

TEST(Strangers, CaseB56_DataConnectionOfNobodyIsRefused) {
  Publisher publisher;
  const auto data = [&](const SessionId& named) {
    Stranger stranger(publisher.listener->endpoint());
    stranger.prove("", Role::kData, named);
    return stranger.why;
  };
  const SessionId nobody = {1, 2, 3};
  EXPECT_THAT(data(nobody).message(), HasSubstr("no rank that is connected"));
  EXPECT_NE(publisher.seen.wait("refused"), "");
  // A rank waits for its data connection: what names another session is not it, nor is a second.
  Stranger control(publisher.listener->endpoint());
  const SessionId session = control.prove("");
  ASSERT_TRUE(control.why.ok()) << control.why.to_string();
  EXPECT_THAT(data(nobody).message(), HasSubstr("no rank that is connected"));
  EXPECT_EQ(publisher.seen.count("data 1"), 0);
  EXPECT_TRUE(data(session).ok());
  EXPECT_NE(publisher.seen.wait("data 1"), "");
  EXPECT_THAT(data(session).message(), HasSubstr("no rank that is connected"));
  EXPECT_EQ(publisher.seen.count("data 1"), 1);
}

TEST(Strangers, S2_NoMoreRanksThanThePublisherTakes) {
  ChannelOptions options;
  options.peers_max = 1;
  Publisher publisher(options);
  Stranger first(publisher.listener->endpoint());
  first.prove("");
  ASSERT_TRUE(first.why.ok()) << first.why.to_string();
  Stranger second(publisher.listener->endpoint());
  second.prove("");
  EXPECT_THAT(second.why.message(), HasSubstr("as many ranks are connected"));
  EXPECT_NE(publisher.seen.wait("refused"), "");
  EXPECT_EQ(publisher.seen.count("open"), 1);
}

// What is queued for a peer that does not read has a ceiling; it is let go and told apart.
TEST(Strangers, S2_APeerThatDoesNotReadIsLetGo) {
  ChannelOptions options;
  options.send_queue_bytes_max = 1 << 20;
  Publisher publisher(options);
  Stranger stopped(publisher.listener->endpoint(), 4096);
  stopped.prove("");
  ASSERT_NE(publisher.seen.wait("open 1"), "");
  for (int i = 0; i < 64; ++i) {
    publisher.listener->send(1, std::vector<uint8_t>(1 << 20));
  }
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("the peer does not read"));
  expect_served(publisher);
}

TEST(Strangers, S2_HalfOpenConnectionsAreBounded) {
  ChannelOptions options;
  options.half_open_max = 4;
  Publisher publisher(options);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<Stranger>(publisher.listener->endpoint()));
  }
  EXPECT_THAT(publisher.seen.wait("refused"), HasSubstr("more than 4 connections wait"));
  expect_served(publisher);  // a real rank proves itself in no time and is not crowded out
}

}  // namespace
}  // namespace changeover::control
