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

std::optional<FenceState::Pin> FenceState::try_enter() {
  uint64_t word = word_.load();
  uint32_t half = 0;
  do {
    half = live_half(word);
    if ((word & (kUp | kGateShut)) != 0 || readers_in(word, half) == kReaders) {
      return std::nullopt;
    }
  } while (!word_.compare_exchange_weak(word, word + one_reader(half)));
  // Nothing is published into a half while a reader is inside, so these belong together.
  return Pin{stamp_of(half), half};
}

std::optional<FenceState::Pin> FenceState::try_enter(VersionStamp version) {
  for (uint64_t word = word_.load();;) {
    const uint32_t live = live_half(word);
    const uint32_t half = stamp_of(live) == version ? live : live ^ 1;
    const bool open = half == live && (word & (kUp | kGateShut)) == 0;
    const bool kept = (word & kKept << half) != 0;
    if ((!open && !kept) || stamp_of(half) != version || readers_in(word, half) == kReaders) {
      return std::nullopt;
    }
    if (!word_.compare_exchange_weak(word, word + one_reader(half))) {
      continue;
    }
    if (stamp_of(half) == version) {
      return Pin{version, half};
    }
    (void)leave(half);  // Two updates went by between the look and the entry.
    word = word_.load();
  }
}

bool FenceState::leave(uint32_t half) {
  const uint64_t before = word_.fetch_sub(one_reader(half));
  return readers_in(before, half) == 1 && ((before & kUp) != 0 || half != live_half(before));
}

VersionStamp FenceState::stamp_of(uint32_t half) const {
  return {stamps_[half].epoch.load(), stamps_[half].version.load()};
}

uint32_t FenceState::readers() const {
  return readers(0) + readers(1);
}
uint32_t FenceState::readers(uint32_t half) const {
  return static_cast<uint32_t>(readers_in(word_.load(), half));
}
uint32_t FenceState::half() const {
  return live_half(word_.load());
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
      text.version = stamp_of(half());
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
  uint64_t word = word_.load();
  while (!word_.compare_exchange_weak(word, (word | kUp) & ~(kKept | kKept << 1))) {
  }
  return static_cast<uint32_t>(readers_in(word, 0) + readers_in(word, 1));
}

void FenceState::raise_for_unnamed(FenceReason reason, std::optional<VersionStamp> about) {
  set_reason(reason, about);
  word_.fetch_or(kUp);
}

uint32_t FenceState::retire(uint32_t half) {
  return static_cast<uint32_t>(readers_in(word_.fetch_and(~(kKept << half)), half));
}

void FenceState::keep(uint32_t half) {
  word_.fetch_or(kKept << half);
}

void FenceState::set_reason(FenceReason reason, std::optional<VersionStamp> about) {
  const VersionStamp stamp = about.value_or(kVersionUnknown);
  sequence_.fetch_add(1);
  reason_.store(reason);
  about_epoch_.store(stamp.epoch);
  about_version_.store(stamp.version);
  sequence_.fetch_add(1);
}

void FenceState::publish(VersionStamp version, uint32_t half) {
  sequence_.fetch_add(1);
  has_version_.store(true);
  stamps_[half].epoch.store(version.epoch);
  stamps_[half].version.store(version.version);
  if (half == 0) {
    word_.fetch_and(~kSecondHalf);
  } else {
    word_.fetch_or(kSecondHalf);
  }
  sequence_.fetch_add(1);
}

void FenceState::lower() {
  set_reason(FenceReason::kNone, std::nullopt);
  if (by_version_ && gate_open()) {
    keep(half());  // Where the fence was raised for nothing.
  }
  word_.fetch_and(~kUp);
}

void FenceState::shut_gate() {
  word_.fetch_or(kGateShut);
}
void FenceState::open_gate() {
  if (by_version_) {
    keep(half());
  }
  word_.fetch_and(~kGateShut);
}

}  // namespace changeover::update
