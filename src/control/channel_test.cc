// Listener and dialer over real sockets, and every kind of stranger that may knock.
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/dialer.h"
#include "control/listener.h"
#include "os/clock.h"
#include "os/entropy.h"
#include "os/local_socket.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

void entropy(std::span<uint8_t> bytes) {
  (void)os::fill_random(std::as_writable_bytes(bytes));
}

// Remembers what it was told; waits for it with a deadline.
class Recorder : public ChannelHandler {
 public:
  void on_open(PeerId peer, const std::string&) override { note("open " + std::to_string(peer)); }
  void on_data(PeerId peer, os::Fd fd) override {
    std::lock_guard lock(mutex_);
    data_.push_back(std::move(fd));
    lines_.push_back("data " + std::to_string(peer));
    changed_.notify_all();
  }
  void on_frame(PeerId peer, std::span<const uint8_t> body) override {
    note("frame " + std::to_string(peer) + " " + std::string(body.begin(), body.end()));
  }
  void on_closed(PeerId peer, const Status& why) override {
    note("closed " + std::to_string(peer) + " " + why.to_string());
  }
  void on_refused(const std::string& address, const Status& why) override {
    note("refused " + address + " " + why.to_string());
  }

  // The first line that holds `text`, or "" if none came for ten seconds.
  std::string wait(const std::string& text) {
    std::unique_lock lock(mutex_);
    std::string found;
    changed_.wait_for(lock, 10s, [&] {
      for (const auto& line : lines_) {
        if (line.find(text) != std::string::npos) {
          found = line;
          return true;
        }
      }
      return false;
    });
    return found;
  }
  os::Fd take_data() {
    std::lock_guard lock(mutex_);
    os::Fd fd = std::move(data_.front());
    data_.erase(data_.begin());
    return fd;
  }
  int count(const std::string& text) {
    std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.find(text) != std::string::npos;
    }));
  }

 private:
  void note(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::vector<os::Fd> data_;
};

std::vector<uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

struct Publisher {
  explicit Publisher(ChannelOptions options = {}, const char* at = "tcp:127.0.0.1:0") {
    auto opened = Listener::open(*Endpoint::parse(at), options, loop, seen, entropy);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    listener = std::move(opened).take();
    loop.start();
  }
  ~Publisher() { loop.stop(); }
  Recorder seen;
  Loop loop;
  std::unique_ptr<Listener> listener;
};

DialerOptions dial_options(const Endpoint& endpoint, ChannelOptions options = {}) {
  DialerOptions dial;
  dial.endpoint = endpoint;
  dial.channel = std::move(options);
  dial.back_off_min = 1ms;
  return dial;
}

struct Rank {
  explicit Rank(const Endpoint& endpoint, ChannelOptions options = {})
      : Rank(dial_options(endpoint, std::move(options))) {}
  explicit Rank(const DialerOptions& dial) {
    dialer = std::make_unique<Dialer>(dial, loop, seen, entropy);
    dialer->dial();
    loop.start();
  }
  ~Rank() { loop.stop(); }
  Recorder seen;
  Loop loop;
  std::unique_ptr<Dialer> dialer;
};

// A rank that works, to show that others are still served.
void expect_served(Publisher& publisher, const ChannelOptions& options = {}) {
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_NE(rank.seen.wait("data 1"), "");
  rank.dialer->send(1, bytes("good"));
  EXPECT_NE(publisher.seen.wait(" good"), "");
}

class Stranger {
 public:
  explicit Stranger(const Endpoint& endpoint, int receive_buffer_bytes = 0)
      : fd_(os::dial_tcp(endpoint.host, endpoint.port, clock_, clock_.now() + 5s).take()) {
    if (receive_buffer_bytes > 0) {
      (void)setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                       sizeof(receive_buffer_bytes));
    }
  }
  void say(std::span<const uint8_t> text) {
    (void)os::send_all(fd_, std::as_bytes(text), clock_, clock_.now() + 5s, "publisher");
  }
  void say(std::string_view text) { say(bytes(text)); }
  // What comes until the other end closes.
  std::string hear_all() {
    std::string heard;
    std::array<std::byte, 4096> buffer;
    while (os::wait_readable(fd_, clock_, clock_.now() + 10s, "publisher").ok()) {
      const auto got = os::read_some(fd_, buffer);
      if (!got.ok() || (*got && **got == 0)) {
        break;
      }
      heard.append(reinterpret_cast<const char*>(buffer.data()), got->value_or(0));
    }
    return heard;
  }
  std::vector<uint8_t> hear(size_t count) {
    std::vector<uint8_t> heard(count);
    EXPECT_TRUE(os::receive_all(fd_, std::as_writable_bytes(std::span(heard)), clock_,
                                clock_.now() + 10s, "publisher")
                    .ok());
    return heard;
  }
  // As a peer that knows the token; the session it was given. `why` is how it ended.
  SessionId prove(std::string_view token, Role role = Role::kControl, const SessionId& named = {}) {
    ClientHandshake handshake(token, role, named, {});
    std::vector<uint8_t> request;
    handshake.start(request);
    while (!request.empty()) {
      say(request);
      request.clear();
      why = handshake.take(hear(handshake.wants()), request);
    }
    return handshake.session();
  }
  Status why;
  void close() { fd_.reset(); }

 private:
  os::SystemClock clock_;
  os::Fd fd_;
};

class ChannelOver : public testing::TestWithParam<const char*> {};

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
                         testing::Values("tcp:127.0.0.1:0", "tcp:[::1]:0", "shm:channel_test"),
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
    ASSERT_NE(publisher.seen.wait("open " + std::to_string(peer)), "");
    publisher.listener->close(peer);
  }
  // Five waits: at least half of 20, 40, 80, 160 and 320 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - start, 310ms);
  ASSERT_NE(rank.seen.wait("data 7"), "");
  rank.dialer->settled();
  publisher.listener->close(peer);
  EXPECT_NE(rank.seen.wait("data 8"), "");
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

TEST(Channel, R7_ASilentPeerIsFoundByItsHeartbeats) {
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
TEST(Channel, R7_S2_AProvedPeerThatOnlyBreathesIsLetGo) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.handshake = 100ms;
  Publisher publisher(options);
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_THAT(publisher.seen.wait("closed 1"), HasSubstr("s for its first message"));
  EXPECT_NE(rank.seen.wait("closed 1"), "");
}

TEST(Channel, R7_ARankWaitsForItsWelcomeUntilADeadline) {
  ChannelOptions options;
  options.heartbeat = 20ms;
  options.handshake = 100ms;
  Publisher publisher;
  Rank rank(publisher.listener->endpoint(), options);
  EXPECT_NE(rank.seen.wait("data 1"), "");
  rank.dialer->send(bytes("hello"));
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

TEST(Channel, CaseB56_WrongAndMissingTokenAreRefusedAndLogged) {
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

TEST(Channel, CaseB56_StrangersAreRefusedAtTheirFirstByte) {
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

TEST(Channel, CaseB56_APeerThatSaysNothingMeetsTheDeadline) {
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

TEST(Channel, CaseB56_ATruncatedHandshakeIsNamed) {
  Publisher publisher;
  Stranger stranger(publisher.listener->endpoint());
  stranger.say(std::span(kMagic).first(5));
  stranger.close();
  EXPECT_NE(publisher.seen.wait("ended after"), "");
  expect_served(publisher);
}

TEST(Channel, CaseB56_A4GiBLengthIsRefusedBeforeItIsRead) {
  Publisher publisher;
  Stranger stranger(publisher.listener->endpoint());
  stranger.prove("");
  stranger.say("\xFF\xFF\xFF\xFF");
  EXPECT_THAT(publisher.seen.wait("closed 1"),
              HasSubstr("a frame of 4294967295 bytes, at most 1048576 are taken"));
  expect_served(publisher);
}

TEST(Channel, CaseB56_ATruncatedFrameIsNamed) {
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

TEST(Channel, CaseB56_DataConnectionOfNobodyIsRefused) {
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

TEST(Channel, S2_NoMoreRanksThanThePublisherTakes) {
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
TEST(Channel, S2_APeerThatDoesNotReadIsLetGo) {
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

TEST(Channel, S2_HalfOpenConnectionsAreBounded) {
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
