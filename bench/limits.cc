#include "bench/limits.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/error.h"
#include "os/mapping.h"
#include "os/poll.h"
#include "os/socket.h"

namespace changeover::bench {

namespace {

constexpr uint64_t kSlots = 8;
constexpr uint64_t kSlotBytes = 1 << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr std::chrono::seconds kPassLimit{120};

struct Counters {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// Spins: a limit has no doorbells. Gives the core away now and then, should there be only one.
template <typename Done>
void spin_until(const Done& done) {
  for (uint64_t turn = 1; !done(); ++turn) {
    if (turn % 4096 == 0) {
      ::sched_yield();
    }
  }
}

// The child's whole life; what it reports is one byte per pass: 1 for done.
[[noreturn]] void run_child(uint64_t bytes, int passes, const os::Fd& report,
                            const std::function<Status(int, std::span<std::byte>)>& child) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Result<os::Fd> memory = os::create_memory("bench-target", bytes);
  if (memory.ok()) {
    const Result<os::Mapping> target = os::Mapping::map(*memory, bytes, os::Access::kReadWrite);
    for (int pass = 0; target.ok() && pass < passes; ++pass) {
      const char done = child(pass, target->span()).ok() ? 1 : 0;
      if (::write(report.get(), &done, 1) != 1 || done == 0) {
        break;
      }
    }
  }
  ::_exit(0);
}

Status wait_for_pass(const os::Fd& report) {
  const os::SystemClock clock;
  std::byte done{};
  CHANGEOVER_TRY(os::receive_all(report, {&done, 1}, clock, clock.now() + kPassLimit,
                                 "the benchmark's receiving process"));
  return done == std::byte{1}
             ? Status()
             : Status(Code::kUnavailable, "the benchmark's receiving process could not receive");
}

}  // namespace

Result<double> time_two_processes(uint64_t bytes, int passes,
                                  const std::function<Status(int)>& parent,
                                  const std::function<Status(int, std::span<std::byte>)>& child) {
  CHANGEOVER_TRY_ASSIGN(auto report, os::socket_pair());
  const pid_t pid = ::fork();
  if (pid < 0) {
    return os::os_error("fork", errno);
  }
  if (pid == 0) {
    report.first.reset();
    run_child(bytes, passes, report.second, child);
  }
  report.second.reset();
  const os::SystemClock clock;
  Status status;
  double seconds = 0;
  for (int pass = 0; pass < passes && status.ok(); ++pass) {
    const Instant start = clock.now();
    status = parent(pass);
    if (status.ok()) {
      status = wait_for_pass(report.first);
    }
    seconds = std::chrono::duration<double>(clock.now() - start).count();
  }
  ::kill(pid, SIGKILL);  // our own child, not reaped yet
  ::waitpid(pid, nullptr, 0);
  if (!status.ok()) {
    return status;
  }
  return seconds;
}

Result<double> shm_copy_limit(std::span<const std::byte> source) {
  const uint64_t bytes = source.size();
  CHANGEOVER_TRY_ASSIGN(const os::Fd fd,
                        os::create_memory("bench-ring", kPageBytes + kSlots * kSlotBytes));
  CHANGEOVER_TRY_ASSIGN(
      const os::Mapping ring,
      os::Mapping::map(fd, kPageBytes + kSlots * kSlotBytes, os::Access::kReadWrite));
  Counters& counters = *new (ring.data()) Counters{};
  std::byte* const slots = ring.data() + kPageBytes;
  const uint64_t count = (bytes + kSlotBytes - 1) / kSlotBytes;
  const auto slot_bytes = [&](uint64_t i) { return std::min(kSlotBytes, bytes - i * kSlotBytes); };
  return time_two_processes(
      bytes, 2,
      [&](int pass) {
        for (uint64_t i = 0, n = pass * count; i < count; ++i, ++n) {
          spin_until([&] { return n < counters.read.load(std::memory_order_acquire) + kSlots; });
          std::memcpy(slots + n % kSlots * kSlotBytes, source.data() + i * kSlotBytes,
                      slot_bytes(i));
          counters.written.store(n + 1, std::memory_order_release);
        }
        return Status();
      },
      [&](int pass, std::span<std::byte> target) {
        for (uint64_t i = 0, n = pass * count; i < count; ++i, ++n) {
          spin_until([&] { return n < counters.written.load(std::memory_order_acquire); });
          std::memcpy(target.data() + i * kSlotBytes, slots + n % kSlots * kSlotBytes,
                      slot_bytes(i));
          counters.read.store(n + 1, std::memory_order_release);
        }
        return Status();
      });
}

Result<double> tcp_write_read_limit(std::span<const std::byte> source) {
  const os::SystemClock clock;
  CHANGEOVER_TRY_ASSIGN(const os::Fd listener, os::listen_tcp("127.0.0.1", 0));
  CHANGEOVER_TRY_ASSIGN(const uint16_t port, os::local_port(listener));
  CHANGEOVER_TRY_ASSIGN(const os::Fd writer, os::dial_tcp("127.0.0.1", port, clock,
                                                          clock.now() + std::chrono::seconds(5)));
  CHANGEOVER_TRY_ASSIGN(
      const os::Fd reader,
      os::accept_connection(listener, clock, clock.now() + std::chrono::seconds(5)));
  return time_two_processes(
      source.size(), 2,
      [&](int) {
        return os::send_all(writer, source, clock, clock.now() + kPassLimit, "the reader");
      },
      [&](int, std::span<std::byte> target) {
        return os::receive_all(reader, target, clock, clock.now() + kPassLimit, "the writer");
      });
}

}  // namespace changeover::bench
