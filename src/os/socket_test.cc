#include "os/socket.h"

#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/poll.h"

namespace changeover::os {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const SystemClock kClock;

Instant in(std::chrono::nanoseconds duration) {
  return kClock.now() + duration;
}

bool has_ipv6() {
  return listen_tcp("::1", 0).ok();
}

// The local addresses (hexadecimal, as the kernel lists them) that listen on this port.
std::vector<std::string> listening_on(uint16_t port) {
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string slot, local, remote, state, rest;
    std::getline(in, rest);
    while (in >> slot >> local >> remote >> state && std::getline(in, rest)) {
      if (state == "0A" && local.ends_with(fmt::format(":{:04X}", port))) {
        addresses.push_back(local.substr(0, local.find(':')));
      }
    }
  }
  return addresses;
}

TEST(Listen, CaseB57_OnlyTheGivenAddressIsBoundAndPortZeroTellsTheRealOne) {
  const Fd listener = listen_tcp("127.0.0.1", 0).take();
  const uint16_t port = local_port(listener).take();
  EXPECT_NE(port, 0);
  EXPECT_EQ(listening_on(port), std::vector<std::string>{"0100007F"});
}

TEST(Listen, CaseB57_SecondInstanceIsToldPortInUseAtOnce) {
  const Fd first = listen_tcp("127.0.0.1", 0).take();
  const uint16_t port = local_port(first).take();
  const Instant start = kClock.now();
  const Status second = listen_tcp("127.0.0.1", port).status();
  EXPECT_LT(kClock.now() - start, seconds(1));
  EXPECT_EQ(second.code(), Code::kUnavailable);
  EXPECT_THAT(second.message(), HasSubstr(fmt::format("port {} in use on 127.0.0.1", port)));
}

TEST(Listen, CaseB57_PortIsFreeAgainAfterAConnectionWasServed) {
  uint16_t port = 0;
  {
    const Fd listener = listen_tcp("127.0.0.1", 0).take();
    port = local_port(listener).take();
    const Fd client = dial_tcp("127.0.0.1", port, kClock, in(seconds(5))).take();
    const Fd server = accept_connection(listener, kClock, in(seconds(5))).take();
  }  // The server's side closed too: the kernel keeps the pair in TIME_WAIT for a minute.
  EXPECT_TRUE(listen_tcp("127.0.0.1", port).ok());
}

TEST(Listen, CaseB57_Ipv6FormsWork) {
  if (!has_ipv6()) {
    EXPECT_EQ(listen_tcp("::1", 0).status().code(), Code::kUnavailable);
    return;
  }
  const Fd listener = listen_tcp("::1", 0).take();
  const uint16_t port = local_port(listener).take();
  EXPECT_EQ(listening_on(port).size(), 1u);
  const Fd client = dial_tcp("::1", port, kClock, in(seconds(5))).take();
  EXPECT_EQ(peer_text(client), fmt::format("[::1]:{}", port));
  // A scope id is understood; whether the address exists is another matter.
  const Status scoped = listen_tcp("fe80::1%lo", 0).status();
  EXPECT_THAT(scoped.ok() ? "" : scoped.message(), testing::Not(HasSubstr("host \"fe80")));
}

TEST(Listen, BadHostIsNamed) {
  const Status status = listen_tcp("no such host", 1).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("host \"no such host\""));
}

TEST(Dial, NobodyThereIsUnavailableWithTheAddress) {
  const uint16_t port = local_port(*listen_tcp("127.0.0.1", 0)).take();
  const Status status = dial_tcp("127.0.0.1", port, kClock, in(seconds(5))).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("connect to 127.0.0.1:{}", port)));
}

TEST(Dial, ConnectionsAreTuned) {
  const Fd listener = listen_tcp("127.0.0.1", 0).take();
  const Fd client =
      dial_tcp("127.0.0.1", local_port(listener).take(), kClock, in(seconds(5))).take();
  for (const auto& [level, option, expected] :
       {std::tuple{int{IPPROTO_TCP}, TCP_NODELAY, 1}, std::tuple{SOL_SOCKET, SO_KEEPALIVE, 1},
        std::tuple{int{IPPROTO_TCP}, TCP_USER_TIMEOUT, 20000}}) {
    int value = 0;
    socklen_t size = sizeof value;
    ASSERT_EQ(::getsockopt(client.get(), level, option, &value, &size), 0);
    EXPECT_EQ(value, expected);
  }
}

TEST(Accept, R7_DeadlineSaysForWhatAndHowLong) {
  const Fd listener = listen_tcp("127.0.0.1", 0).take();
  const Status status = accept_connection(listener, kClock, in(milliseconds(30))).status();
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_THAT(status.message(), testing::ContainsRegex("waited [0-9.]+ m?s for a connection"));
}

TEST(Unix, S4_AbstractNameIsFreeAgainAndTakenIsSaid) {
  const std::string name = fmt::format("changeover-test-{}", ::getpid());
  {
    const Fd listener = listen_unix(name).take();
    const Status taken = listen_unix(name).status();
    EXPECT_EQ(taken.code(), Code::kUnavailable);
    EXPECT_THAT(taken.message(), HasSubstr("\"@" + name + "\" in use"));
    const Fd client = dial_unix(name, kClock, in(seconds(5))).take();
    const Fd server = accept_connection(listener, kClock, in(seconds(5))).take();
    EXPECT_EQ(peer_credentials(server)->pid, ::getpid());
    EXPECT_EQ(peer_credentials(server)->uid, ::getuid());
    EXPECT_EQ(peer_text(server), fmt::format("unix (pid {})", ::getpid()));
  }
  EXPECT_TRUE(listen_unix(name).ok());
  EXPECT_EQ(dial_unix(name, kClock, in(seconds(5))).status().code(), Code::kUnavailable);
  EXPECT_EQ(listen_unix("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(listen_unix(std::string(108, 'x')).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(listen_unix(std::string(107, 'x')).ok());
}

TEST(WholeMessages, ArriveOrSayHowMuchDid) {
  auto [a, b] = socket_pair().take();
  const std::vector<std::byte> sent(3'000'000, std::byte{5});
  std::vector<std::byte> got(sent.size());
  std::thread sender(
      [&, &a = a] { EXPECT_TRUE(send_all(a, sent, kClock, in(seconds(20)), "reader").ok()); });
  EXPECT_TRUE(receive_all(b, got, kClock, in(seconds(20)), "sender").ok());
  sender.join();
  EXPECT_EQ(got, sent);

  const Status full = send_all(a, sent, kClock, in(milliseconds(30)), "reader");
  EXPECT_EQ(full.code(), Code::kDeadline);
  EXPECT_THAT(full.message(), HasSubstr("for reader to take 3000000 bytes, "));
  std::vector<std::byte> more(4'000'000);
  const Status short_of = receive_all(b, more, kClock, in(milliseconds(30)), "sender");
  EXPECT_EQ(short_of.code(), Code::kDeadline);
  EXPECT_THAT(short_of.message(), HasSubstr("of 4000000 bytes had arrived"));
  a.reset();
  const Status closed = receive_all(b, more, kClock, in(seconds(5)), "sender");
  EXPECT_EQ(closed.code(), Code::kUnavailable);
  EXPECT_THAT(closed.message(), HasSubstr("0 of 4000000 bytes had arrived"));
  EXPECT_EQ(send_all(b, sent, kClock, in(seconds(5)), "sender").code(), Code::kUnavailable);
}

size_t open_descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    count += ::dup2(fd, fd) == fd;
  }
  return count;
}

TEST(Descriptors, CrossAndWrongCountsAreRefusedWithoutALeak) {
  auto [a, b] = socket_pair().take();
  const Doorbell bell = Doorbell::create().take();
  const int two[] = {bell.fd().get(), bell.fd().get()};
  const size_t before = open_descriptors();
  {
    ASSERT_TRUE(send_descriptors(a, two, kClock, in(seconds(5)), "reader").ok());
    std::vector<Fd> got = receive_descriptors(b, 2, kClock, in(seconds(5)), "sender").take();
    Doorbell(std::move(got[0])).ring();
    EXPECT_TRUE(bell.clear());
    EXPECT_FALSE(bell.clear());
  }
  ASSERT_TRUE(send_descriptors(a, two, kClock, in(seconds(5)), "reader").ok());
  const Status wrong = receive_descriptors(b, 1, kClock, in(seconds(5)), "sender").status();
  EXPECT_EQ(wrong.code(), Code::kCorrupt);
  EXPECT_THAT(wrong.message(), HasSubstr("2 descriptors where 1 were expected"));
  const std::byte plain[] = {std::byte{1}};
  ASSERT_TRUE(send_all(a, plain, kClock, in(seconds(5)), "reader").ok());
  EXPECT_EQ(receive_descriptors(b, 1, kClock, in(seconds(5)), "sender").status().code(),
            Code::kCorrupt);
  EXPECT_EQ(receive_descriptors(b, 1, kClock, in(milliseconds(20)), "sender").status().code(),
            Code::kDeadline);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(send_descriptors(a, {}, kClock, in(seconds(5)), "reader").code(),
            Code::kInvalidArgument);
  a.reset();
  EXPECT_EQ(receive_descriptors(b, 1, kClock, in(seconds(5)), "sender").status().code(),
            Code::kUnavailable);
}

TEST(Descriptors, S3_NoneLeftToOpenIsThisProcesssOwnWant) {
  auto [a, b] = socket_pair().take();
  const Doorbell bell = Doorbell::create().take();
  const int two[] = {bell.fd().get(), bell.fd().get()};
  ASSERT_TRUE(send_descriptors(a, two, kClock, in(seconds(5)), "reader").ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(b.get());
  ::close(next);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const Status status = receive_descriptors(b, 2, kClock, in(seconds(5)), "sender").status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("only 1 of the descriptors from sender"));
}

}  // namespace
}  // namespace changeover::os
