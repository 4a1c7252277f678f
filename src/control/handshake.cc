#include "control/handshake.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace changeover::control {
namespace {

constexpr size_t kVersionAt = 8;
constexpr size_t kRoleAt = 10;  // In a ServerHello: the verdict.
constexpr size_t kFlagsAt = 11;
constexpr size_t kZeroAt = 12;
constexpr size_t kSessionAt = 16;
constexpr size_t kNonceAt = 32;
constexpr uint8_t kHasToken = 1;

// None where the library has no HMAC-SHA256 (its configuration forbids it, say): a proof of zeros
// would be one that everybody knows.
std::optional<Hmac> prove(std::string_view token, std::string_view who,
                          std::span<const uint8_t> transcript) {
  std::array<uint8_t, 6 + 2 * kHelloBytes> text{};
  std::copy_n(who.begin(), 6, text.begin());
  std::copy(transcript.begin(), transcript.end(), text.begin() + 6);
  Hmac proof{};
  unsigned int bytes = 0;
  if (token.size() > INT_MAX ||
      HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), text.data(), text.size(),
           proof.data(), &bytes) == nullptr ||
      bytes != proof.size()) {
    return std::nullopt;
  }
  return proof;
}

void write_hello(std::span<uint8_t> hello, uint8_t role_or_verdict, bool has_token,
                 const SessionId& session, const Nonce& nonce) {
  std::copy(kMagic.begin(), kMagic.end(), hello.begin());
  hello[kVersionAt] = kHandshakeVersion & 0xFF;
  hello[kVersionAt + 1] = kHandshakeVersion >> 8;
  hello[kRoleAt] = role_or_verdict;
  hello[kFlagsAt] = has_token ? kHasToken : 0;
  std::copy(session.begin(), session.end(), hello.begin() + kSessionAt);
  std::copy(nonce.begin(), nonce.end(), hello.begin() + kNonceAt);
}

bool same(const Hmac& proof, std::span<const uint8_t> given) {
  return CRYPTO_memcmp(proof.data(), given.data(), proof.size()) == 0;  // constant time
}

// Magic, version and the zero bytes, which both hellos share.
Verdict check_hello(std::span<const uint8_t> hello) {
  if (!std::equal(kMagic.begin(), kMagic.end(), hello.begin())) {
    return Verdict::kNotAPeer;
  }
  if (hello[kVersionAt] != (kHandshakeVersion & 0xFF) ||
      hello[kVersionAt + 1] != kHandshakeVersion >> 8) {
    return Verdict::kVersion;
  }
  const auto zero = hello.subspan(kZeroAt, 4);
  return std::any_of(zero.begin(), zero.end(), [](uint8_t b) { return b != 0; })
             ? Verdict::kNotAPeer
             : Verdict::kOk;
}

}  // namespace

Status verdict_status(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return {};
    case Verdict::kNotAPeer:
      return {Code::kCorrupt, "handshake: the first bytes are not those of a changeover peer"};
    case Verdict::kVersion:
      return {Code::kRefused,
              "handshake: the peer speaks another version than 1; use one release on both sides"};
    case Verdict::kRole:
      return {Code::kCorrupt, "handshake: the role is neither control nor data"};
    case Verdict::kTokenMissing:
      return {Code::kRefused,
              "handshake: the publisher asks for a token and the rank has none; give it the same"};
    case Verdict::kTokenUnexpected:
      return {Code::kRefused,
              "handshake: the rank has a token and the publisher none; give both the same"};
    case Verdict::kTokenWrong:
      return {Code::kRefused, "handshake: wrong token; give both sides the same"};
    case Verdict::kSessionUnknown:
      return {Code::kRefused, "handshake: a data connection of no rank that is connected"};
    case Verdict::kAddressRefused:
      return {Code::kRefused,
              "handshake: without a token only peers of this host and user are taken; set a token"};
    case Verdict::kFull:
      return {Code::kRefused, "handshake: as many ranks are connected as this publisher takes"};
    case Verdict::kNoProof:
      return {Code::kUnavailable,
              "handshake: HMAC-SHA256 cannot be computed; look at the configuration of OpenSSL"};
  }
  return {Code::kCorrupt, "handshake: unknown verdict " + std::to_string(int(verdict))};
}

ServerHandshake::ServerHandshake(std::string_view token, const Nonce& nonce,
                                 const SessionId& session)
    : token_(token), nonce_(nonce), session_(session) {}

size_t ServerHandshake::wants() const {
  switch (state_) {
    case State::kHello:
      return kHelloBytes;
    case State::kProof:
      return kClientProofBytes;
    default:
      return 0;
  }
}

bool ServerHandshake::plausible(std::span<const uint8_t> prefix) const {
  const size_t n = std::min(prefix.size(), kMagic.size());
  return state_ != State::kHello || std::equal(prefix.begin(), prefix.begin() + n, kMagic.begin());
}

Status ServerHandshake::take(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply) {
  if (bytes.size() != wants() || bytes.empty()) {
    return {Code::kCorrupt, "handshake: " + std::to_string(bytes.size()) + " bytes out of turn"};
  }
  return state_ == State::kHello ? take_hello(bytes, reply) : take_proof(bytes, reply);
}

Status ServerHandshake::take_hello(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply) {
  if (Verdict verdict = check_hello(bytes); verdict != Verdict::kOk) {
    return refuse(verdict, reply);
  }
  if (bytes[kRoleAt] != uint8_t(Role::kControl) && bytes[kRoleAt] != uint8_t(Role::kData)) {
    return refuse(Verdict::kRole, reply);
  }
  role_ = static_cast<Role>(bytes[kRoleAt]);
  const bool client_has_token = (bytes[kFlagsAt] & kHasToken) != 0;
  if (client_has_token != !token_.empty()) {
    return refuse(client_has_token ? Verdict::kTokenUnexpected : Verdict::kTokenMissing, reply);
  }
  std::copy_n(bytes.begin() + kSessionAt, named_session_.size(), named_session_.begin());
  std::copy(bytes.begin(), bytes.end(), transcript_.begin());
  const auto hello = std::span(transcript_).subspan(kHelloBytes);
  write_hello(hello, uint8_t(Verdict::kOk), !token_.empty(), session_, nonce_);
  reply.insert(reply.end(), hello.begin(), hello.end());
  state_ = State::kProof;
  return {};
}

Status ServerHandshake::take_proof(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply) {
  const auto proof = prove(token_, "client", transcript_);
  if (!proof || !same(*proof, bytes)) {
    return refuse(proof ? Verdict::kTokenWrong : Verdict::kNoProof, reply);
  }
  state_ = State::kProved;
  return {};
}

Status ServerHandshake::refuse(Verdict verdict, std::vector<uint8_t>& reply) {
  if (state_ == State::kHello) {
    std::array<uint8_t, kHelloBytes> hello{};
    write_hello(hello, uint8_t(verdict), !token_.empty(), {}, {});
    reply.insert(reply.end(), hello.begin(), hello.end());
  } else {
    reply.push_back(uint8_t(verdict));
    reply.resize(reply.size() + kServerProofBytes - 1, 0);
  }
  state_ = State::kDone;
  return verdict_status(verdict);
}

Status ServerHandshake::accept(std::vector<uint8_t>& reply) {
  const auto proof = prove(token_, "server", transcript_);
  if (!proof) {
    return refuse(Verdict::kNoProof, reply);
  }
  reply.push_back(uint8_t(Verdict::kOk));
  reply.resize(reply.size() + 7, 0);
  reply.insert(reply.end(), proof->begin(), proof->end());
  state_ = State::kDone;
  return {};
}

ClientHandshake::ClientHandshake(std::string_view token, Role role, const SessionId& session,
                                 const Nonce& nonce)
    : token_(token) {
  write_hello(std::span(transcript_).first(kHelloBytes), uint8_t(role), !token_.empty(), session,
              nonce);
}

void ClientHandshake::start(std::vector<uint8_t>& request) {
  request.insert(request.end(), transcript_.begin(), transcript_.begin() + kHelloBytes);
}

size_t ClientHandshake::wants() const {
  switch (state_) {
    case State::kHello:
      return kHelloBytes;
    case State::kProof:
      return kServerProofBytes;
    default:
      return 0;
  }
}

Status ClientHandshake::take(std::span<const uint8_t> bytes, std::vector<uint8_t>& request) {
  if (bytes.size() != wants() || bytes.empty()) {
    return {Code::kCorrupt, "handshake: " + std::to_string(bytes.size()) + " bytes out of turn"};
  }
  if (state_ == State::kHello) {
    CHANGEOVER_TRY(verdict_status(check_hello(bytes)));
    CHANGEOVER_TRY(verdict_status(static_cast<Verdict>(bytes[kRoleAt])));
    std::copy(bytes.begin(), bytes.end(), transcript_.begin() + kHelloBytes);
    std::copy_n(bytes.begin() + kSessionAt, given_session_.size(), given_session_.begin());
    const auto proof = prove(token_, "client", transcript_);
    if (!proof) {
      return verdict_status(Verdict::kNoProof);
    }
    request.insert(request.end(), proof->begin(), proof->end());
    state_ = State::kProof;
    return {};
  }
  CHANGEOVER_TRY(verdict_status(static_cast<Verdict>(bytes[0])));
  const auto proof = prove(token_, "server", transcript_);
  if (!proof) {
    return verdict_status(Verdict::kNoProof);
  }
  if (!same(*proof, bytes.subspan(8))) {
    return {Code::kRefused, "handshake: the publisher does not know the token; not taking weights"};
  }
  state_ = State::kDone;
  return {};
}

}  // namespace changeover::control
