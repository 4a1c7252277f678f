#include "control/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

namespace changeover::control {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

struct Outcome {
  Status server;
  Status client;
  Bytes wire;  // everything that crossed
  SessionId session{};
};

Outcome shake(std::string_view server_token, std::string_view client_token,
              Verdict last = Verdict::kOk) {
  Outcome out;
  ServerHandshake server(server_token, Nonce{1}, SessionId{7});
  ClientHandshake client(client_token, Role::kControl, {}, Nonce{2});
  Bytes to_server;
  Bytes to_client;
  client.start(to_server);
  while (!to_server.empty() && out.client.ok()) {
    out.wire.insert(out.wire.end(), to_server.begin(), to_server.end());
    out.server = server.take(to_server, to_client);
    to_server.clear();
    if (server.proved()) {
      if (last == Verdict::kOk) {
        out.server = server.accept(to_client);
      } else {
        out.server = server.refuse(last, to_client);
      }
    }
    out.wire.insert(out.wire.end(), to_client.begin(), to_client.end());
    if (to_client.size() == client.wants()) {
      out.client = client.take(to_client, to_server);
    }
    to_client.clear();
  }
  out.session = client.session();
  return out;
}

TEST(Handshake, S1_BothSidesProveTheSameToken) {
  const Outcome out = shake("secret", "secret");
  EXPECT_TRUE(out.server.ok()) << out.server.to_string();
  EXPECT_TRUE(out.client.ok()) << out.client.to_string();
  EXPECT_EQ(out.session, SessionId{7});
  EXPECT_EQ(out.wire.size(), 2 * kHelloBytes + kClientProofBytes + kServerProofBytes);
}

// A library that computes no HMAC (here: its provider is taken away) must not leave both sides with
// proofs of zeros, which any stranger can send.
TEST(Handshake, S1_WithoutAnHmacNobodyIsProved) {
  struct NoProvider {
    NoProvider() { EVP_set_default_properties(nullptr, "provider=nobody"); }
    ~NoProvider() { EVP_set_default_properties(nullptr, ""); }
  };
  {
    const NoProvider none;
    EXPECT_THAT(shake("secret", "secret").client.message(), HasSubstr("HMAC-SHA256 cannot be"));
    ServerHandshake server("secret", Nonce{1}, SessionId{7});
    ClientHandshake client("secret", Role::kControl, {}, Nonce{2});
    Bytes hello;
    client.start(hello);
    Bytes reply;
    ASSERT_TRUE(server.take(hello, reply).ok());
    EXPECT_EQ(server.take(Bytes(kClientProofBytes, 0), reply).code(), Code::kUnavailable);
    EXPECT_FALSE(server.proved());
  }
  EXPECT_TRUE(shake("secret", "secret").client.ok()) << "the library works again";
}

TEST(Handshake, S1_NoTokenOnEitherSide) {
  const Outcome out = shake("", "");
  EXPECT_TRUE(out.server.ok() && out.client.ok());
}

TEST(Handshake, CaseB56_TheTokenIsNeverOnTheWire) {
  const std::string token = "a-long-secret-token";
  const Outcome out = shake(token, token);
  const std::string wire(out.wire.begin(), out.wire.end());
  EXPECT_EQ(wire.find(token), std::string::npos);
  EXPECT_EQ(wire.find(token.substr(0, 8)), std::string::npos);
}

TEST(Handshake, CaseB56_WrongMissingAndUnexpectedTokensAreToldApart) {
  const Outcome wrong = shake("secret", "guess");
  EXPECT_THAT(wrong.server.message(), HasSubstr("wrong token"));
  EXPECT_THAT(wrong.client.message(), HasSubstr("wrong token"));
  EXPECT_EQ(wrong.client.code(), Code::kRefused);
  const Outcome missing = shake("secret", "");
  EXPECT_THAT(missing.client.message(), HasSubstr("asks for a token and the rank has none"));
  const Outcome unexpected = shake("", "secret");
  EXPECT_THAT(unexpected.client.message(), HasSubstr("has a token and the publisher none"));
}

TEST(Handshake, S1_ARankDoesNotTakeWeightsFromAnImpostor) {
  ClientHandshake client("secret", Role::kControl, {}, Nonce{2});
  ServerHandshake parrot("secret", Nonce{1}, SessionId{});
  Bytes hello;
  Bytes reply;
  client.start(hello);
  ASSERT_TRUE(parrot.take(hello, reply).ok());
  Bytes proof;
  ASSERT_TRUE(client.take(reply, proof).ok());
  Bytes echo(8, 0);  // "ok", and the client's own proof sent back
  echo.insert(echo.end(), proof.begin(), proof.end());
  const Status status = client.take(echo, reply);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_FALSE(client.done());
}

// A proof that was overheard opens nothing else: each side's nonce, and the session, are in it.
TEST(Handshake, S1_AProofIsOfNoUseInAnotherHandshake) {
  for (const auto& [nonce, session] :
       {std::pair{Nonce{9}, SessionId{7}}, {Nonce{1}, SessionId{8}}}) {
    ClientHandshake client("secret", Role::kControl, {}, Nonce{2});
    ServerHandshake first("secret", Nonce{1}, SessionId{7});
    ServerHandshake second("secret", nonce, session);
    Bytes hello;
    Bytes reply;
    Bytes proof;
    client.start(hello);
    ASSERT_TRUE(first.take(hello, reply).ok());
    ASSERT_TRUE(client.take(reply, proof).ok());
    ASSERT_TRUE(second.take(hello, reply).ok());
    EXPECT_FALSE(second.take(proof, reply).ok());
  }
  // The publisher's proof, played back to a rank that asks anew.
  ServerHandshake server("secret", Nonce{1}, SessionId{7});
  Bytes answers[2];
  for (const Nonce& nonce : {Nonce{2}, Nonce{3}}) {
    ClientHandshake client("secret", Role::kControl, {}, nonce);
    Bytes request;
    if (answers[0].empty()) {
      client.start(request);
      ASSERT_TRUE(server.take(request, answers[0]).ok());
      request.clear();
      ASSERT_TRUE(client.take(answers[0], request).ok());
      Bytes ignored;
      ASSERT_TRUE(server.take(request, ignored).ok());
      ASSERT_TRUE(server.accept(answers[1]).ok());
      EXPECT_TRUE(client.take(answers[1], ignored).ok());
    } else {
      ASSERT_TRUE(client.take(answers[0], request).ok());
      EXPECT_FALSE(client.take(answers[1], request).ok());
    }
  }
}

TEST(Handshake, S3_AnotherVersionIsNamed) {
  Bytes hello;
  ClientHandshake client("", Role::kControl, {}, Nonce{2});
  client.start(hello);
  hello[8] = 2;
  ServerHandshake server("", Nonce{1}, SessionId{7});
  Bytes reply;
  EXPECT_THAT(server.take(hello, reply).message(), HasSubstr("another version than 1"));
  Bytes request;
  EXPECT_FALSE(client.take(reply, request).ok());
}

TEST(Handshake, CaseB56_AStrangerIsKnownByItsFirstByte) {
  const ServerHandshake server("", Nonce{}, SessionId{});
  for (const std::string_view text : {"GET / HTTP/1.1", "\x80\x04\x95", "\xFF\xFF\xFF\xFF", "{"}) {
    EXPECT_FALSE(server.plausible({reinterpret_cast<const uint8_t*>(text.data()), 1})) << text;
  }
  EXPECT_TRUE(server.plausible({kMagic.data(), 3}));
  const Bytes almost = {'C', 'H', 'G', 'O', 'V', 'E', 'R', '\r'};
  EXPECT_FALSE(server.plausible(almost));
}

// Every byte of a hello and a proof matters: flip one and nobody gets in.
TEST(Handshake, S1_EveryFlippedBitIsRefused) {
  Bytes good;
  ClientHandshake("secret", Role::kData, SessionId{3}, Nonce{2}).start(good);
  for (size_t i = 0; i < (kHelloBytes + kClientProofBytes) * 8; ++i) {
    ServerHandshake server("secret", Nonce{1}, SessionId{7});
    ClientHandshake client("secret", Role::kData, SessionId{3}, Nonce{2});
    Bytes hello = good;
    if (i < kHelloBytes * 8) {
      hello[i / 8] ^= uint8_t(1 << (i % 8));
    }
    Bytes reply;
    Status status = server.take(hello, reply);
    Bytes proof;
    if (status.ok() && client.take(reply, proof).ok()) {
      if (i >= kHelloBytes * 8) {
        proof[i / 8 - kHelloBytes] ^= uint8_t(1 << (i % 8));
      }
      status = server.take(proof, reply);
    }
    EXPECT_FALSE(status.ok()) << "bit " << i;
    EXPECT_FALSE(server.proved()) << "bit " << i;
  }
}

TEST(Handshake, RefusalAfterTheProofIsTold) {
  const Outcome out = shake("secret", "secret", Verdict::kSessionUnknown);
  EXPECT_THAT(out.client.message(), HasSubstr("no rank that is connected"));
}

}  // namespace
}  // namespace changeover::control
