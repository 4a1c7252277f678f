// Test support: every road behind one face, so that one suite runs over all of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "os/clock.h"
#include "os/fd.h"
#include "transport/transport.h"

namespace changeover::transport {

enum class RoadKind : uint8_t { kTcp, kTcp6, kShm, kFile };

struct KitOptions {
  RoadKind road = RoadKind::kShm;
  bool faulty = false;  // wrapped in faulty/ with no fault: must change nothing
  uint32_t readers = 1;
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(10);
  uint32_t slots = 8;
  uint64_t slot_bytes = 1 << 20;
};

// A publisher's end and the ranks' ends, connected. Nothing runs in threads of its own.
class Kit {
 public:
  static Result<std::unique_ptr<Kit>> create(const KitOptions& options);
  ~Kit();

  SendRoad& sender() { return *sender_; }
  // All readers' indices; reader i is named "reader/i" in errors.
  const std::vector<uint32_t>& all() const { return all_; }
  // Rank i's end, once; in the thread or child that uses it. A file: after finish().
  Result<std::unique_ptr<ReceiveRoad>> open_reader(uint32_t i);
  // The stream's END was sent.
  Status finish();
  // A fresh connection for reader i, attached under its index.
  Status attach(uint32_t i);
  // In a forked child that is reader i: closes what belongs to the others.
  void become_reader(uint32_t i);
  // In the parent, after the fork.
  void forget_reader(uint32_t i) { reader_ends_[i].reset(); }

 private:
  explicit Kit(KitOptions options) : options_(options) {}
  Status make_sender();

  KitOptions options_;
  std::vector<uint32_t> all_;
  std::vector<os::Fd> reader_ends_;
  std::unique_ptr<SendRoad> sender_;
  std::function<Status(uint32_t, os::Fd)> attach_;
  std::function<Status()> finish_;
  std::string path_;
};

// The bytes of a test stream, made from a seed and a position.
std::byte pattern(uint64_t seed, uint64_t position);
std::vector<std::byte> pattern_bytes(uint64_t seed, uint64_t from, uint64_t bytes);

// Sizes of the parts of a stream: header, metadata, payload in turn; empty parts among them.
std::vector<uint64_t> random_parts(uint64_t seed, uint32_t frames, uint64_t bytes_max);
uint64_t total_bytes(const std::vector<uint64_t>& parts);
Part part_at(size_t i);

// Sends the parts, by send() or by lend() and commit(), and flushes. Stops at the first failure.
Status send_parts(SendRoad& road, uint64_t seed, const std::vector<uint64_t>& parts,
                  std::chrono::nanoseconds limit, bool lend);
// Receives them, comparing each byte; `into` = offers memory of its own. kCorrupt names the first
// wrong byte.
Status receive_parts(ReceiveRoad& road, uint64_t seed, const std::vector<uint64_t>& parts,
                     std::chrono::nanoseconds limit, bool into);

Instant in(std::chrono::nanoseconds duration);

}  // namespace changeover::transport
