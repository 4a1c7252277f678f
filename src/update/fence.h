// What the fence and the step gate are made of: one atomic word that readers and the writer share,
// and the version that goes with it. Nothing here waits; the runtime's Fence does, on top.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include <changeover/status.h>
#include <changeover/types.h>

namespace changeover::update {

// Of weights that are whole but carry no number (a reload that declared none, rule T9).
inline constexpr VersionStamp kVersionUnknown{-1, -1};

enum class FenceReason : uint8_t {
  kNone,
  kNoVersion,  // nothing was ever loaded
  kReceiving,  // an update writes
  kPrepared,   // voted yes; the decision is not there
  kMixed,      // an update failed after its first byte; only a whole new one helps
  kReloading,  // a reload is not complete
};

// Starts up (kNoVersion) and with the gate shut.
//
// Live memory is a half: number 0, the only one, or in `swap` one of two in turn. A version belongs
// to the half that holds it. It is published only while no reader is inside that half, so a reader
// that got in sees one (version, weights) pair until it leaves (rule T11).
//
// Readers: any thread. Everything marked "writer": one thread, the one that runs the update.
class FenceState {
 public:
  // What a reader has: this version, in this half.
  struct Pin {
    VersionStamp version;
    uint32_t half = 0;
    bool operator==(const Pin&) const = default;
  };

  // Counts the caller in; nullopt while the fence is up or the gate is shut. Every success needs
  // one leave().
  std::optional<Pin> try_enter();
  // The same for a step that carries its version (rule V6): nullopt unless that very version can be
  // had. After pin_by_version() it can from its release until its half is retired or the fence is
  // raised, whatever else becomes live meanwhile.
  std::optional<Pin> try_enter(VersionStamp version);
  // True if this was the last reader of a half that the writer may wait for: wake it.
  bool leave(uint32_t half = 0);

  uint32_t readers() const;  // of both halves
  uint32_t readers(uint32_t half) const;
  uint32_t half() const;  // the live one
  bool up() const;
  bool gate_open() const;
  // True when try_enter() would succeed now.
  bool open() const;
  std::optional<VersionStamp> version() const;  // of the live half
  // "receiving version 7", "no version loaded yet", "waiting for release of version 7"; empty when
  // open.
  std::string reason() const;

  // Writer, before the first reader: versions can be named.
  void pin_by_version() { by_version_ = true; }
  // Writer. Up at once for all newcomers, those that name a version too; returns how many readers
  // are still inside. Memory may be written once readers() is 0.
  uint32_t raise(FenceReason reason, std::optional<VersionStamp> about);
  // Writer. Up for newcomers that name no version.
  void raise_for_unnamed(FenceReason reason, std::optional<VersionStamp> about);
  // Writer. Changes what reason() says of a fence that is up.
  void set_reason(FenceReason reason, std::optional<VersionStamp> about);
  // Writer. Nobody enters this half by name any more; returns how many readers are still inside.
  uint32_t retire(uint32_t half);
  // Writer. Takes retire() back. REQUIRES: the half was not written meanwhile.
  void keep(uint32_t half);
  // Writer. The half becomes the live one. REQUIRES: up, no readers in it.
  void publish(VersionStamp version, uint32_t half = 0);
  // Writer. The next try_enter() after it sees what was published and written before.
  void lower();
  // Writer.
  void shut_gate();
  void open_gate();

 private:
  static constexpr uint64_t kUp = 1ull << 63;
  static constexpr uint64_t kGateShut = 1ull << 62;
  static constexpr uint64_t kSecondHalf = 1ull << 61;  // the live half is number 1
  static constexpr uint64_t kKept = 1ull << 59;        // << half: may be entered by name
  static constexpr int kReaderBits = 24;               // of each half
  static constexpr uint64_t kReaders = (1ull << kReaderBits) - 1;

  struct Stamp {
    std::atomic<int64_t> epoch{0};
    std::atomic<int64_t> version{0};
  };
  struct Text {
    std::optional<VersionStamp> version;
    FenceReason reason = FenceReason::kNone;
    VersionStamp about;
  };
  static uint32_t live_half(uint64_t word) { return (word & kSecondHalf) != 0 ? 1 : 0; }
  static uint64_t one_reader(uint32_t half) { return 1ull << (kReaderBits * half); }
  static uint64_t readers_in(uint64_t word, uint32_t half) {
    return word >> (kReaderBits * half) & kReaders;
  }
  VersionStamp stamp_of(uint32_t half) const;
  Text read_text() const;

  // Flags and reader counts in one word: a reader that comes in and a fence that rises are ordered
  // by it alone, whatever the memory model.
  std::atomic<uint64_t> word_{kUp | kGateShut};
  bool by_version_ = false;
  std::atomic<uint32_t> sequence_{0};  // odd while the fields below change
  std::atomic<bool> has_version_{false};
  std::array<Stamp, 2> stamps_;  // by half
  std::atomic<FenceReason> reason_{FenceReason::kNoVersion};
  std::atomic<int64_t> about_epoch_{-1};
  std::atomic<int64_t> about_version_{-1};
};

// How a transaction gets the fence up. The runtime's implementation raises FenceState and waits for
// the readers inside, up to its deadline; if that passes it lowers the fence again and says who was
// inside, for how long (rules T7, R7; case B60).
class FenceRaiser {
 public:
  virtual ~FenceRaiser() = default;
  virtual Status raise_and_drain(FenceReason reason, VersionStamp about) = 0;
  // `swap`: takes the half that is not live out of use and waits for the guards that still hold it.
  // After an error, which says how many they are, it is as it was.
  virtual Status reclaim(uint32_t half) = 0;
};

}  // namespace changeover::update
