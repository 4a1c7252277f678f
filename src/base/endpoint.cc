#include <algorithm>
#include <charconv>
#include <optional>

#include <changeover/endpoint.h>

#include "base/utf8.h"

namespace changeover {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
         c == '-';
}

// A decimal number without sign or surplus zeros, at most `value_max`.
std::optional<uint32_t> parse_number(std::string_view text, uint32_t value_max) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || !is_digit(text[0]) || error != std::errc() ||
      end != text.data() + text.size() || value > value_max ||
      (text.size() > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  return value;
}

bool is_ipv4(std::string_view text) {
  for (int part = 0; part < 4; ++part) {
    const size_t dot = text.find('.');
    if ((dot == std::string_view::npos) != (part == 3) || !parse_number(text.substr(0, dot), 255)) {
      return false;
    }
    text.remove_prefix(part == 3 ? 0 : dot + 1);
  }
  return true;
}

// Counts the 16-bit groups of one side of "::" into `groups`; false where one is malformed.
bool count_groups(std::string_view text, bool ipv4_may_end, int& groups) {
  while (!text.empty()) {
    const size_t colon = text.find(':');
    const std::string_view group = text.substr(0, colon);
    if (colon == std::string_view::npos && ipv4_may_end && is_ipv4(group)) {
      groups += 2;
      return true;
    }
    if (group.empty() || group.size() > 4 || !std::all_of(group.begin(), group.end(), is_hex)) {
      return false;
    }
    ++groups;
    if (colon == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(colon + 1);
    if (text.empty()) {
      return false;  // A colon at the end.
    }
  }
  return true;
}

// "::1", "fe80::1%eth0", "::ffff:10.0.0.1".
bool is_ipv6(std::string_view text) {
  if (const size_t percent = text.find('%'); percent != std::string_view::npos) {
    const std::string_view scope = text.substr(percent + 1);
    if (scope.empty() || scope.size() > 32 || !std::all_of(scope.begin(), scope.end(), is_word)) {
      return false;
    }
    text = text.substr(0, percent);
  }
  int groups = 0;
  const size_t gap = text.find("::");
  if (gap == std::string_view::npos) {
    return count_groups(text, true, groups) && groups == 8;
  }
  return count_groups(text.substr(0, gap), false, groups) &&
         count_groups(text.substr(gap + 2), true, groups) && groups < 8;
}

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > 253 || !std::all_of(text.begin(), text.end(), is_word)) {
    return false;
  }
  // Digits and dots alone are meant as an IPv4 address, and must be one.
  const bool numeric =
      std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; });
  return numeric ? is_ipv4(text) : text.front() != '-' && text.front() != '.';
}

Status bad(std::string_view text, std::string_view why) {
  return {Code::kInvalidArgument,
          "endpoint " + base::quoted(text) + ": " + std::string(why) +
              " (forms: tcp:HOST:PORT, tcp:[IPV6]:PORT, shm:NAME, file:PATH, unix:PATH)"};
}

Result<Endpoint> parse_tcp(std::string_view text, std::string_view rest) {
  Endpoint endpoint;
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || rest.ends_with(']')) {
    return bad(text, "the port is missing");
  }
  std::string_view host = rest.substr(0, colon);
  const std::optional<uint32_t> port = parse_number(rest.substr(colon + 1), 65535);
  if (!port) {
    return bad(text, "the port must be a number from 0 to 65535");
  }
  if (host.starts_with('[')) {
    if (!host.ends_with(']') || !is_ipv6(host.substr(1, host.size() - 2))) {
      return bad(text, "what stands in brackets is not an IPv6 address");
    }
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    if (!is_ipv6(host)) {
      return bad(text, is_ipv6(rest) ? "the port is missing; write an IPv6 address in brackets"
                                     : "the host is not an IPv6 address");
    }
  } else if (!is_host_name(host)) {
    return bad(text, "the host is neither an address nor a name");
  }
  endpoint.host = host;
  endpoint.port = static_cast<uint16_t>(*port);
  return endpoint;
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon == std::string_view::npos) {
    return bad(text, "no road is named");
  }
  const std::string_view rest = text.substr(colon + 1);
  if (kind == "tcp") {
    return parse_tcp(text, rest);
  }
  Endpoint endpoint;
  endpoint.name = rest;
  if (kind == "shm") {
    endpoint.kind = Kind::kShm;
    if (rest.empty() || rest.size() > 64 || !std::all_of(rest.begin(), rest.end(), is_word)) {
      return bad(text, "a shm name is 1 to 64 of the characters A-Z a-z 0-9 . _ -");
    }
    return endpoint;
  }
  if (kind != "file" && kind != "unix") {
    return bad(text, "unknown road " + base::quoted(kind));
  }
  endpoint.kind = kind == "file" ? Kind::kFile : Kind::kUnix;
  if (rest.empty() || rest.find('\0') != std::string_view::npos) {
    return bad(text, "the path is empty or holds a NUL");
  }
  constexpr size_t kUnixPathMax = 107;  // sockaddr_un has room for 108 bytes with the final NUL.
  if (endpoint.kind == Kind::kUnix && rest.size() > kUnixPathMax) {
    return bad(text, "a unix socket's path has at most 107 bytes, this one " +
                         std::to_string(rest.size()));
  }
  return endpoint;
}

std::string Endpoint::to_string() const {
  switch (kind) {
    case Kind::kTcp: {
      const bool brackets = host.find(':') != std::string::npos;
      return "tcp:" + (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
    }
    case Kind::kShm:
      return "shm:" + name;
    case Kind::kFile:
      return "file:" + name;
    case Kind::kUnix:
      return "unix:" + name;
  }
  return {};
}

}  // namespace changeover
