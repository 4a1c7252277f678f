// The trainer's side: listens, waits for ranks, sends a version to all of them as one update.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <changeover/endpoint.h>
#include <changeover/report.h>
#include <changeover/source.h>
#include <changeover/status.h>
#include <changeover/subscriber.h>
#include <changeover/types.h>

namespace changeover {

struct PublisherOptions {
  Endpoint endpoint;  // kTcp or kShm.
  std::string job = "default";
  std::string token;                      // Empty = none; then only loopback and shm are allowed.
  uint64_t ring_slot_bytes = 1ull << 20;  // shm: the ring all readers share
  uint32_t ring_slots = 8;
  Deadlines deadlines;
  // Refusals, losses and warnings, one line each; from the control thread or the one in publish().
  // Must not block; may call peers(). What it throws is dropped.
  std::function<void(std::string_view line)> log;
};

struct PublishOptions {
  VersionStamp version;
  uint64_t bucket_bytes = 1ull << 30;  // Rule W4.
  bool digests = true;                 // Rule U2; off is said in the report.
  // Wait for that many ranks of whole engines. No update begins with fewer: where one went
  // meanwhile they are waited for once more, and who is missing is named when the time is up.
  uint32_t ranks_min = 1;
  std::chrono::nanoseconds ranks_timeout = std::chrono::seconds(60);
  // When the source may be read (rule U1). Must be set: publishing without saying so is refused.
  std::variant<std::monostate, ReadyNow, ReadyEvent> ready;
  std::function<void(uint64_t sent, uint64_t total)>
      on_progress;  // Payload bytes, caller's thread.
};

// A rank as the publisher sees it now.
struct PeerStatus {
  RankName rank;
  int32_t engine_size = 1;
  Incarnation incarnation;
  std::optional<VersionStamp> version;
  bool fenced = false;
  bool pending = false;  // Its engine does not hold one version in full (rule M5).
  std::string host;
};

// Thread rules: publish() from one thread at a time (a second call is kRefused, "busy"); peers()
// from any thread. One control thread is started by open().
class Publisher {
 public:
  virtual ~Publisher() = default;
  // kUnavailable "address in use: ..." where another process listens there.
  static Result<std::unique_ptr<Publisher>> open(PublisherOptions options);

  // The endpoint with the real port.
  virtual const Endpoint& endpoint() const = 0;
  virtual std::vector<PeerStatus> peers() const = 0;
  // Blocks until `count` ranks of whole engines are connected, or kDeadline naming who is missing.
  virtual Status wait_for_ranks(uint32_t count, std::chrono::nanoseconds timeout) = 0;

  // One update: begin, stream, vote, decision, release. Returns when every rank has answered or
  // missed its deadline, and the source may be written again. The Result is an error only where no
  // update was begun; how a begun update ended is UpdateReport::status.
  virtual Result<UpdateReport> publish(TensorSource& source, const PublishOptions& options) = 0;
};

// Writes the plain frozen wire to a file: temporary name, fsync, rename. kExhausted with both
// numbers where the disk is full; nothing is left.
Result<UpdateReport> record_stream(TensorSource& source, const PublishOptions& options,
                                   const std::filesystem::path& path);
// A recorded stream as a source (`publish` of it replays it to any road).
Result<std::unique_ptr<TensorSource>> open_recorded_stream(const std::filesystem::path& path);

}  // namespace changeover
