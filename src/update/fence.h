// What the fence and the step gate are made of: one atomic word that readers and the writer share,
// and the version that goes with it. Nothing here waits; the runtime's Fence does, on top.
#pragma once

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
// Readers: any thread. Everything marked "writer": one thread, the one that runs the update.
// A version is published only while the fence is up and no reader is inside, so a reader that got
// in sees one (version, weights) pair until it leaves (rule T11).
class FenceState {
 public:
  // Counts the caller in and returns the version it may use; nullopt while the fence is up or the
  // gate is shut. Every success needs one leave().
  std::optional<VersionStamp> try_enter();
  // True if this was the last reader while the fence is up: wake the writer that waits for it.
  bool leave();

  uint32_t readers() const;
  bool up() const;
  bool gate_open() const;
  // True when try_enter() would succeed now.
  bool open() const;
  std::optional<VersionStamp> version() const;
  // "receiving version 7", "no version loaded yet", "waiting for release of version 7"; empty when
  // open.
  std::string reason() const;

  // Writer. Up at once for newcomers; returns how many readers are still inside. Memory may be
  // written once readers() is 0.
  uint32_t raise(FenceReason reason, std::optional<VersionStamp> about);
  // Writer. Changes what reason() says of a fence that is up.
  void set_reason(FenceReason reason, std::optional<VersionStamp> about);
  // Writer. REQUIRES: up, no readers.
  void publish(VersionStamp version);
  // Writer. The next try_enter() after it sees what was published and written before.
  void lower();
  // Writer.
  void shut_gate();
  void open_gate();

 private:
  static constexpr uint64_t kUp = 1ull << 63;
  static constexpr uint64_t kGateShut = 1ull << 62;
  static constexpr uint64_t kReaders = (1ull << 32) - 1;

  struct Text {
    std::optional<VersionStamp> version;
    FenceReason reason = FenceReason::kNone;
    VersionStamp about;
  };
  Text read_text() const;

  // Flags and reader count in one word: a reader that comes in and a fence that rises are ordered
  // by it alone, whatever the memory model.
  std::atomic<uint64_t> word_{kUp | kGateShut};
  std::atomic<uint32_t> sequence_{0};  // odd while the fields below change
  std::atomic<bool> has_version_{false};
  std::atomic<int64_t> epoch_{0};
  std::atomic<int64_t> version_{0};
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
};

}  // namespace changeover::update
