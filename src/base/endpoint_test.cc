#include <changeover/endpoint.h>

#include <gtest/gtest.h>

namespace changeover {
namespace {

Endpoint tcp(std::string host, uint16_t port) {
  Endpoint endpoint;
  endpoint.host = std::move(host);
  endpoint.port = port;
  return endpoint;
}

void expect_parses(std::string_view text, const Endpoint& wanted) {
  const Result<Endpoint> got = Endpoint::parse(text);
  ASSERT_TRUE(got.ok()) << text << ": " << got.status().to_string();
  EXPECT_EQ(*got, wanted) << text;
  const Result<Endpoint> again = Endpoint::parse(got->to_string());
  ASSERT_TRUE(again.ok()) << got->to_string();
  EXPECT_EQ(*again, wanted);
}

void expect_refused(std::string_view text, std::string_view why) {
  const Result<Endpoint> got = Endpoint::parse(text);
  ASSERT_FALSE(got.ok()) << text << " gave " << got->to_string();
  EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
  EXPECT_NE(got.status().message().find(why), std::string::npos) << got.status().message();
}

TEST(Endpoint, CaseB57_Ipv6FormsParse) {
  expect_parses("tcp:[::1]:7000", tcp("::1", 7000));
  expect_parses("tcp:::1:7000", tcp("::1", 7000));
  expect_parses("tcp:fe80::1%eth0:7000", tcp("fe80::1%eth0", 7000));
  expect_parses("tcp:[fe80::1%eth0]:0", tcp("fe80::1%eth0", 0));
  expect_parses("tcp:[::]:80", tcp("::", 80));
  expect_parses("tcp:[1:2:3:4:5:6:7:8]:80", tcp("1:2:3:4:5:6:7:8", 80));
  expect_parses("tcp:[::ffff:10.0.0.1]:80", tcp("::ffff:10.0.0.1", 80));
}

TEST(Endpoint, CaseB57_AnIpv6AddressWithoutPortIsRefusedAndSaysHowToWriteIt) {
  expect_refused("tcp:fe80::1", "port");
  expect_refused("tcp:[::1]", "the port is missing");
  expect_refused("tcp:1:2:3:4:5:6:7:99999", "port");
  EXPECT_NE(Endpoint::parse("tcp:fe80::").status().message().find("[IPV6]"), std::string::npos);
}

TEST(Endpoint, CaseB57_Ipv4NamesAndPortZero) {
  expect_parses("tcp:127.0.0.1:0", tcp("127.0.0.1", 0));
  expect_parses("tcp:node-1.example_x.org:65535", tcp("node-1.example_x.org", 65535));
}

TEST(Endpoint, RefusesMalformedTcp) {
  expect_refused("tcp:127.0.0.1", "the port is missing");
  expect_refused("tcp:256.0.0.1:1", "neither an address nor a name");
  expect_refused("tcp:1.2.3:1", "neither an address nor a name");
  expect_refused("tcp::7000", "neither an address nor a name");
  expect_refused("tcp:host:65536", "0 to 65535");
  expect_refused("tcp:host:-1", "0 to 65535");
  expect_refused("tcp:host:+1", "0 to 65535");
  expect_refused("tcp:host:", "0 to 65535");
  expect_refused("tcp:host:7o", "0 to 65535");
  expect_refused("tcp:ho st:7", "neither an address nor a name");
  expect_refused("tcp:[127.0.0.1]:7", "not an IPv6 address");
  expect_refused("tcp:[:::1]:7", "not an IPv6 address");
  expect_refused("tcp:[1::2::3]:7", "not an IPv6 address");
  expect_refused("tcp:[1:2:3:4:5:6:7:8:9]:7", "not an IPv6 address");
  expect_refused("tcp:[12345::]:7", "not an IPv6 address");
  expect_refused("tcp:[fe80::1%]:7", "not an IPv6 address");
  expect_refused("tcp:a:b:7", "not an IPv6 address");
}

TEST(Endpoint, OtherRoads) {
  Endpoint shm;
  shm.kind = Endpoint::Kind::kShm;
  shm.name = "job.1_a-b";
  expect_parses("shm:job.1_a-b", shm);
  expect_refused("shm:", "1 to 64");
  expect_refused("shm:" + std::string(65, 'x'), "1 to 64");
  expect_refused("shm:a/b", "1 to 64");
  Endpoint file;
  file.kind = Endpoint::Kind::kFile;
  file.name = "/tmp/a:b c";
  expect_parses("file:/tmp/a:b c", file);
  Endpoint unix_socket;
  unix_socket.kind = Endpoint::Kind::kUnix;
  unix_socket.name = "/run/x";
  expect_parses("unix:/run/x", unix_socket);
  expect_refused("unix:" + std::string(108, 'x'), "108");
  expect_refused("file:", "empty");
  expect_refused(std::string_view("file:a\0b", 8), "NUL");
  expect_refused("nccl:x", "unknown road \"nccl\"");
  expect_refused("", "no road");
  expect_refused("7000", "no road");
}

}  // namespace
}  // namespace changeover
