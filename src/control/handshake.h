// The first bytes of every connection, control or data: who is there, which role, and a proof of
// the token, before anything whose length the peer chooses is read (rule S1, case B56).
//
//   client -> server  ClientHello  64 bytes  magic[8] version:u16 role:u8 flags:u8 zero:u32
//                                            session[16] nonce[32]
//   server -> client  ServerHello  64 bytes  magic[8] version:u16 verdict:u8 flags:u8 zero:u32
//                                            session[16] nonce[32]
//   client -> server  ClientProof  32 bytes  HMAC-SHA256(token, "client" ClientHello ServerHello)
//   server -> client  ServerProof  40 bytes  verdict:u8 zero[7]
//                                            HMAC-SHA256(token, "server" ClientHello ServerHello)
//
// Integers are little-endian, flags bit 0 = "I have a token". Every size is fixed. The token never
// travels, and both sides prove it: a rank does not take weights from an impostor either. A session
// is what the server gave a rank's control connection; its data connection names it.
//
// No socket, clock or randomness in here: bytes in, bytes out; nonces are arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>

namespace changeover::control {

enum class Role : uint8_t { kControl = 1, kData = 2 };

using Nonce = std::array<uint8_t, 32>;
using SessionId = std::array<uint8_t, 16>;
using Hmac = std::array<uint8_t, 32>;

inline constexpr std::array<uint8_t, 8> kMagic = {'C', 'H', 'G', 'O', 'V', 'E', 'R', '\n'};
inline constexpr uint16_t kHandshakeVersion = 1;
inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kClientProofBytes = 32;
inline constexpr size_t kServerProofBytes = 40;

// What a server answers; the numbers are part of the wire.
enum class Verdict : uint8_t {
  kOk = 0,
  kNotAPeer = 1,         // The first bytes are not ours.
  kVersion = 2,          // Another version of this handshake.
  kRole = 3,             // Neither control nor data.
  kTokenMissing = 4,     // The server has a token, the client none.
  kTokenUnexpected = 5,  // The client has a token, the server none.
  kTokenWrong = 6,
  kSessionUnknown = 7,  // A data connection that belongs to no rank that is connected.
  kAddressRefused = 8,  // No token, and the peer is not on this host or of another user.
  kFull = 9,            // As many ranks as this publisher takes.
  kNoProof = 10,        // The server's library computes no HMAC-SHA256.
};
// kOk for Verdict::kOk, else what it means and what to do (kUnavailable only for kNoProof).
Status verdict_status(Verdict verdict);

// The publisher's end. Feed exactly wants() bytes to take(), send what it appends to `reply`; when
// take() is not ok, send that too and close: it tells the peer why.
class ServerHandshake {
 public:
  ServerHandshake(std::string_view token, const Nonce& nonce, const SessionId& session);

  // Bytes of the next message from the peer; 0 once done() or refused.
  size_t wants() const;
  // False as soon as the bytes that have come of the next message cannot become a valid one, so
  // that a stranger is refused at its first wrong byte and not at the deadline.
  bool plausible(std::span<const uint8_t> prefix) const;
  Status take(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply);
  // Refuses a peer that is being looked at, for a reason from outside; appends what to send.
  Status refuse(Verdict verdict, std::vector<uint8_t>& reply);

  // The proof was right. The owner then asks accept() for the last reply (or refuse()); where
  // accept() is not ok its reply says so to the peer.
  bool proved() const { return state_ == State::kProved; }
  Status accept(std::vector<uint8_t>& reply);

  Role role() const { return role_; }                        // After the first take().
  const SessionId& session() const { return session_; }      // Given to a control connection.
  const SessionId& named() const { return named_session_; }  // Named by a data connection.

 private:
  enum class State : uint8_t { kHello, kProof, kProved, kDone };
  Status take_hello(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply);
  Status take_proof(std::span<const uint8_t> bytes, std::vector<uint8_t>& reply);

  State state_ = State::kHello;
  std::string token_;
  Nonce nonce_;
  SessionId session_;
  SessionId named_session_{};
  Role role_ = Role::kControl;
  std::array<uint8_t, 2 * kHelloBytes> transcript_{};
};

// The rank's end.
class ClientHandshake {
 public:
  // `session`: zeros for a control connection, what the server gave for a data connection.
  ClientHandshake(std::string_view token, Role role, const SessionId& session, const Nonce& nonce);

  void start(std::vector<uint8_t>& request);
  size_t wants() const;
  Status take(std::span<const uint8_t> bytes, std::vector<uint8_t>& request);
  bool done() const { return state_ == State::kDone; }
  const SessionId& session() const { return given_session_; }

 private:
  enum class State : uint8_t { kHello, kProof, kDone };

  State state_ = State::kHello;
  std::string token_;
  SessionId given_session_{};
  std::array<uint8_t, 2 * kHelloBytes> transcript_{};
};

}  // namespace changeover::control
