// Where a publisher listens and ranks dial: tcp:HOST:PORT, shm:NAME, file:PATH, unix:PATH.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover {

struct Endpoint {
  enum class Kind : uint8_t { kTcp, kShm, kFile, kUnix };
  Kind kind = Kind::kTcp;
  std::string host;   // kTcp: address or name, without brackets.
  uint16_t port = 0;  // kTcp: 0 = any free port; the publisher tells the real one.
  std::string name;   // kShm: 1..64 of [A-Za-z0-9._-]. kFile, kUnix: a path.
  bool operator==(const Endpoint&) const = default;

  // IPv6 in brackets or bare ("tcp:[::1]:7000", "tcp:::1:7000", scope ids as in fe80::1%eth0).
  static Result<Endpoint> parse(std::string_view text);
  std::string to_string() const;  // Brackets around IPv6; parse(to_string()) is the same endpoint.
};

}  // namespace changeover
