// What the machine itself can do, to stand beside a figure of ours in the same run: bare copies,
// bare sockets, nothing else. Made before a fork; each process then takes its own end.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <changeover/status.h>

#include "os/fd.h"
#include "os/mapping.h"

namespace changeover::bench {

inline constexpr uint32_t kLimitReadersMax = 16;

// Bytes copied into one shared mapping by a writer and out of it by each reader, 8 slots of 1 MiB
// in flight.
class CopyRing {
 public:
  static Result<CopyRing> make(uint32_t readers);

  // One pass each. Passes of writer and readers have the same number of bytes.
  void write(std::span<const std::byte> source);
  void read(uint32_t reader, std::span<std::byte> target);

 private:
  // A count that grows, waited for across processes.
  struct alignas(64) Counter {
    std::atomic<uint32_t> value;
    std::atomic<uint32_t> sleepers;
  };
  struct Counters {
    Counter written;
    std::array<Counter, kLimitReadersMax> read;
  };
  CopyRing(os::Mapping memory, uint32_t readers);
  void advance(Counter& counter, uint32_t value) const;
  void wait_for(Counter& counter, uint32_t least) const;
  std::byte* slot(uint32_t number) const;

  os::Mapping memory_;
  Counters* counters_;
  uint32_t readers_;
  uint32_t turns_;      // How often to look before sleeping.
  uint32_t count_ = 0;  // Slots of this process's passes so far.
};

// One loopback connection: write() here, read() there.
class Loopback {
 public:
  static Result<Loopback> make();
  Status write(std::span<const std::byte> source) const;
  Status read(std::span<std::byte> target) const;

 private:
  os::Fd writer_;
  os::Fd reader_;
};

}  // namespace changeover::bench
