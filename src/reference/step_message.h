// Messages between the ranks of one engine about its numbered steps, and their bytes.
//
// One message is one datagram of at most kStepMessageBytesMax bytes: a fixed head, then three short
// strings. All integers are little-endian. docs/admin.md, "Steps", has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover::reference {

inline constexpr size_t kStepNameBytesMax = 256;
inline constexpr size_t kStepTextBytesMax = 512;
inline constexpr size_t kStepMessageBytesMax = 1536;
inline constexpr uint64_t kStepNumberMax = uint64_t{1} << 62;

enum class StepKind : uint8_t {
  kHello = 1,    // follower: who I am, the last step I saw and the last one I ran
  kWelcome = 2,  // conductor: you are in; the engine waits for `text`, if anything
  kRefuse = 3,   // conductor: you are not, because `text`
  kPrepare = 4,  // conductor: take a guard for `step`; the last step that counts is `last_run`
  kAnswer = 5,   // follower: I can (and hold `version`), or cannot because `text`
  kRun = 6,      // conductor: all can; run `step` on `version`
  kDone = 7,     // follower: ran it (`checksum`), or did not because `text`
  kCancel = 8,   // conductor: not all can, because `text`; drop the guard
  kClose = 9,    // conductor: the step counts (all ranks ran it), or for nobody because `text`
  kReady = 10,   // follower: I could not before, now I can
  kChange = 11,  // conductor: the step does not run; all go on to `version` at this boundary
};
std::string_view step_kind_name(StepKind kind);

struct StepMessage {
  StepKind kind = StepKind::kHello;
  bool yes = false;  // kAnswer: can. kDone: ran. kClose: counts.
  Incarnation sender;
  uint64_t step = 0;
  uint64_t last_run = 0;
  uint64_t checksum = 0;
  int32_t rank = 0;
  int32_t engine_size = 0;
  std::optional<VersionStamp> version;
  std::optional<VersionStamp> next;  // kAnswer: what this rank is ready to change to
  std::string job;                   // kHello only, as is
  std::string engine;                // this one
  std::string text;
  bool operator==(const StepMessage&) const = default;
};

// Strings over their ceiling are cut: they are our own.
std::vector<std::byte> encode_step_message(const StepMessage& message);
// kCorrupt names the field. Never reads outside `bytes`.
Result<StepMessage> decode_step_message(std::span<const std::byte> bytes);

}  // namespace changeover::reference
