#include "update/fence.h"

namespace changeover::update {

namespace {

std::string version_text(VersionStamp stamp) {
  if (stamp == kVersionUnknown) {
    return "a version without a number";
  }
  std::string text = "version " + std::to_string(stamp.version);
  if (stamp.epoch != 0) {
    text += " of epoch " + std::to_string(stamp.epoch);
  }
  return text;
}

}  // namespace

std::optional<VersionStamp> FenceState::try_enter() {
  uint64_t word = word_.load();
  do {
    if ((word & (kUp | kGateShut)) != 0 || (word & kReaders) == kReaders) {
      return std::nullopt;
    }
  } while (!word_.compare_exchange_weak(word, word + 1));
  // Nothing is published while a reader is inside, so these two belong together.
  return VersionStamp{epoch_.load(), version_.load()};
}

bool FenceState::leave() {
  const uint64_t before = word_.fetch_sub(1);
  return (before & kUp) != 0 && (before & kReaders) == 1;
}

uint32_t FenceState::readers() const {
  return static_cast<uint32_t>(word_.load() & kReaders);
}
bool FenceState::up() const {
  return (word_.load() & kUp) != 0;
}
bool FenceState::gate_open() const {
  return (word_.load() & kGateShut) == 0;
}
bool FenceState::open() const {
  return (word_.load() & (kUp | kGateShut)) == 0;
}

FenceState::Text FenceState::read_text() const {
  for (;;) {
    const uint32_t before = sequence_.load();
    Text text;
    if (has_version_.load()) {
      text.version = VersionStamp{epoch_.load(), version_.load()};
    }
    text.reason = reason_.load();
    text.about = {about_epoch_.load(), about_version_.load()};
    if (before % 2 == 0 && sequence_.load() == before) {
      return text;
    }
  }
}

std::optional<VersionStamp> FenceState::version() const {
  return read_text().version;
}

std::string FenceState::reason() const {
  const uint64_t word = word_.load();
  if ((word & (kUp | kGateShut)) == 0) {
    return "";
  }
  const Text text = read_text();
  if ((word & kUp) == 0) {
    return "waiting for the release of " +
           (text.version ? version_text(*text.version) : std::string("a version"));
  }
  switch (text.reason) {
    case FenceReason::kReceiving:
      return "receiving " + version_text(text.about);
    case FenceReason::kPrepared:
      return "prepared " + version_text(text.about) + ", the decision is not here";
    case FenceReason::kMixed:
      return "the update to " + version_text(text.about) +
             " failed after it had written; a whole new one is needed";
    case FenceReason::kReloading:
      return "a reload to " + version_text(text.about) + " is not complete";
    case FenceReason::kNone:
    case FenceReason::kNoVersion:
      break;
  }
  return "no version was loaded so far";
}

uint32_t FenceState::raise(FenceReason reason, std::optional<VersionStamp> about) {
  set_reason(reason, about);
  return static_cast<uint32_t>(word_.fetch_or(kUp) & kReaders);
}

void FenceState::set_reason(FenceReason reason, std::optional<VersionStamp> about) {
  const VersionStamp stamp = about.value_or(kVersionUnknown);
  sequence_.fetch_add(1);
  reason_.store(reason);
  about_epoch_.store(stamp.epoch);
  about_version_.store(stamp.version);
  sequence_.fetch_add(1);
}

void FenceState::publish(VersionStamp version) {
  sequence_.fetch_add(1);
  has_version_.store(true);
  epoch_.store(version.epoch);
  version_.store(version.version);
  sequence_.fetch_add(1);
}

void FenceState::lower() {
  set_reason(FenceReason::kNone, std::nullopt);
  word_.fetch_and(~kUp);
}

void FenceState::shut_gate() {
  word_.fetch_or(kGateShut);
}
void FenceState::open_gate() {
  word_.fetch_and(~kGateShut);
}

}  // namespace changeover::update
