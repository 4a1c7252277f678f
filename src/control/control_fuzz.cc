// The bytes a peer may send: a control frame's body, and both ends of the handshake. What decodes
// must encode to something that decodes to the same.
#include <algorithm>
#include <cstdlib>

#include "control/codec.h"
#include "control/handshake.h"

using namespace changeover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  if (auto message = control::decode(bytes); message.ok()) {
    const auto again = control::encode(*message);
    auto second = control::decode(again);
    if (!second.ok() || control::encode(*second) != again) {
      std::abort();
    }
  }
  std::vector<uint8_t> reply;
  control::ServerHandshake server("token", {}, {});
  control::ClientHandshake client("token", control::Role::kControl, {}, {});
  size_t at = 0;
  while (server.wants() > 0 && at + server.wants() <= size && !server.proved()) {
    const auto next = bytes.subspan(at, server.wants());
    at += next.size();
    if (!server.take(next, reply).ok()) {
      break;
    }
  }
  at = 0;
  while (client.wants() > 0 && at + client.wants() <= size) {
    const auto next = bytes.subspan(at, client.wants());
    at += next.size();
    if (!client.take(next, reply).ok()) {
      break;
    }
  }
  if (server.proved() || client.done()) {
    std::abort();  // Nobody proves a token that it does not have.
  }
  return 0;
}
