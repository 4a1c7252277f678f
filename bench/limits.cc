#include "bench/limits.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/process.h"
#include "os/clock.h"
#include "os/error.h"
#include "os/socket.h"

namespace changeover::bench {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint64_t kSlotBytes = 1 << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr std::chrono::seconds kConnect{5};

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Result<CopyRing> CopyRing::make(uint32_t readers) {
  if (readers < 1 || readers > kLimitReadersMax) {
    return Status(Code::kInvalidArgument, "a limit has 1 to 16 readers");
  }
  static_assert(sizeof(Counters) <= kPageBytes);
  const uint64_t bytes = kPageBytes + kSlots * kSlotBytes;
  CHANGEOVER_TRY_ASSIGN(const os::Fd fd, os::create_memory("bench-ring", bytes));
  CHANGEOVER_TRY_ASSIGN(os::Mapping memory, os::Mapping::map(fd, bytes, os::Access::kReadWrite));
  memory.populate(os::Access::kReadWrite);
  return CopyRing(std::move(memory), readers);
}

CopyRing::CopyRing(os::Mapping memory, uint32_t readers)
    : memory_(std::move(memory)),
      counters_(new (memory_.data()) Counters{}),
      readers_(readers),
      // With a core for each process, looking is faster than sleeping; without, it takes the core
      // from the one that is waited for.
      turns_(readers < static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN)) ? 20000 : 50) {}

std::byte* CopyRing::slot(uint32_t number) const {
  return memory_.data() + kPageBytes + number % kSlots * kSlotBytes;
}

void CopyRing::advance(Counter& counter, uint32_t value) const {
  counter.value.store(value);
  if (counter.sleepers.load() != 0) {
    futex(counter.value, FUTEX_WAKE, INT32_MAX);
  }
}

void CopyRing::wait_for(Counter& counter, uint32_t least) const {
  const auto missing = [&](uint32_t value) { return static_cast<int32_t>(value - least) < 0; };
  for (uint32_t turn = 0; turn < turns_; ++turn) {
    if (!missing(counter.value.load(std::memory_order_acquire))) {
      return;
    }
    pause();
  }
  counter.sleepers.fetch_add(1);
  for (uint32_t value = counter.value.load(); missing(value); value = counter.value.load()) {
    futex(counter.value, FUTEX_WAIT, value);
  }
  counter.sleepers.fetch_sub(1);
}

void CopyRing::write(std::span<const std::byte> source) {
  for (; !source.empty(); ++count_) {
    const auto part = source.first(std::min<uint64_t>(kSlotBytes, source.size()));
    for (uint32_t reader = 0; reader < readers_; ++reader) {
      wait_for(counters_->read[reader], count_ + 1 - kSlots);
    }
    std::memcpy(slot(count_), part.data(), part.size());
    advance(counters_->written, count_ + 1);
    source = source.subspan(part.size());
  }
}

void CopyRing::read(uint32_t reader, std::span<std::byte> target) {
  for (; !target.empty(); ++count_) {
    const auto part = target.first(std::min<uint64_t>(kSlotBytes, target.size()));
    wait_for(counters_->written, count_ + 1);
    std::memcpy(part.data(), slot(count_), part.size());
    advance(counters_->read[reader], count_ + 1);
    target = target.subspan(part.size());
  }
}

Result<Loopback> Loopback::make() {
  const os::SystemClock clock;
  Loopback loopback;
  CHANGEOVER_TRY_ASSIGN(const os::Fd listener, os::listen_tcp("127.0.0.1", 0));
  CHANGEOVER_TRY_ASSIGN(const uint16_t port, os::local_port(listener));
  CHANGEOVER_TRY_ASSIGN(loopback.writer_,
                        os::dial_tcp("127.0.0.1", port, clock, clock.now() + kConnect));
  CHANGEOVER_TRY_ASSIGN(loopback.reader_,
                        os::accept_connection(listener, clock, clock.now() + kConnect));
  for (const int fd : {loopback.writer_.get(), loopback.reader_.get()}) {
    if (::fcntl(fd, F_SETFL, 0) != 0) {  // Blocking.
      return os::os_error("fcntl", errno);
    }
  }
  return loopback;
}

Status Loopback::write(std::span<const std::byte> source) const {
  return write_all(writer_.get(), source.data(), source.size())
             ? Status()
             : Status(Code::kUnavailable, "the bare loopback connection broke");
}

Status Loopback::read(std::span<std::byte> target) const {
  return read_all(reader_.get(), target.data(), target.size())
             ? Status()
             : Status(Code::kUnavailable, "the bare loopback connection broke");
}

}  // namespace changeover::bench
