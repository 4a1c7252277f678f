// Small value types that every part shares: versions, digests, identities, modes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <changeover/status.h>

namespace changeover {

// What a trainer calls "version N". Both are >= 0; compared epoch first (rule T1). "No version
// yet" is a state of its own: std::optional<VersionStamp> without a value.
struct VersionStamp {
  int64_t epoch = 0;
  int64_t version = 0;
  auto operator<=>(const VersionStamp&) const = default;
};

// XXH3-128, canonical byte order, seed 0. As text 32 lower-case hex digits.
struct Digest {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Digest&) const = default;
  std::string to_text() const;
  static Result<Digest> parse(std::string_view text);
};

// 128 random bits drawn when a process starts; never repeats, also after a restart.
struct Incarnation {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Incarnation&) const = default;
  std::string to_text() const;
};

// Names one update; never reused. In every control message of that update.
struct UpdateId {
  Incarnation coordinator;
  uint64_t counter = 0;
  auto operator<=>(const UpdateId&) const = default;
  std::string to_text() const;  // "<first 8 hex digits of the incarnation>/<counter>"
};

// One worker process of an engine.
struct RankName {
  std::string engine;
  int32_t rank = 0;  // Index within the engine, 0 .. tp_size-1.
  auto operator<=>(const RankName&) const = default;
  std::string to_text() const;  // "engine-a/2"
};

// How new bytes reach live memory (rules T7, T8, T10, V6).
enum class Mode : uint8_t {
  kInPlace,  // Written straight into live memory under the fence; an abort leaves it fenced.
  kJournal,  // As kInPlace, the overwritten bytes kept in host memory: an abort restores them.
  kStaged,   // Into a second copy while the engine serves; under the fence for one copy of it.
  kSwap,     // Into a second half that becomes the live one; guards name their half.
};
std::string_view mode_name(Mode mode);  // "in_place", "journal", "staged", "swap"
Result<Mode> parse_mode(std::string_view text);

}  // namespace changeover
