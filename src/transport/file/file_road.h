// The file road: records the plain stream (rules W1-W5, nothing added) and plays it back.
#pragma once

#include <atomic>
#include <memory>

#include "os/clock.h"
#include "os/file.h"
#include "os/mapping.h"
#include "transport/send_peers.h"
#include "transport/transport.h"

namespace changeover::transport {

// One peer, index 0: the file. It appears under its name by finish() and not before; an aborted or
// failed recording leaves nothing.
class FileSendRoad final : public SendRoad {
 public:
  explicit FileSendRoad(std::string path);

  // After END: writes what is left, fsync, rename. The stream is over then.
  Status finish();

  const Capabilities& capabilities() const override { return capabilities_; }
  // Throws away what an earlier stream that was not finished had written.
  Status open_stream(std::span<const uint32_t> peers, uint64_t stream_id) override;
  Result<std::span<std::byte>> lend(Part part, uint64_t bytes, Instant deadline) override;
  Status commit(uint64_t bytes) override;
  Status send(Part part, std::span<const std::byte> bytes, Instant deadline) override;
  Status flush(Instant deadline) override;
  void drop(uint32_t peer, const Status& why) override;
  std::vector<PeerFailure> take_failures() override;

 private:
  Status write_staged();
  Status write(std::span<const std::byte> bytes);
  Status failed(const Status& why);

  const Capabilities capabilities_;
  const std::string path_;
  std::unique_ptr<os::AtomicFile> file_;
  std::unique_ptr<std::byte[]> staged_;
  uint64_t staged_bytes_ = 0;
  uint64_t lent_bytes_ = 0;
  PeerFailures failures_;
};

// Plays a recorded stream; its runs are the file's own pages. Every stream begins at its first
// byte.
class FileReceiveRoad final : public ReceiveRoad {
 public:
  static Result<std::unique_ptr<FileReceiveRoad>> create(const std::string& path);

  const Capabilities& capabilities() const override { return capabilities_; }
  Status open_stream(uint64_t stream_id) override;
  Result<Run> receive(Part part, uint64_t bytes_max, std::span<std::byte> into,
                      Instant deadline) override;
  Status release(const Run& run) override;
  void wake() override;
  void close() override;

  uint64_t bytes_left() const { return mapping_.bytes() - offset_; }

 private:
  FileReceiveRoad(std::string path, os::Mapping mapping);

  const Capabilities capabilities_;
  const std::string path_;
  os::Mapping mapping_;
  uint64_t offset_ = 0;
  bool closed_ = false;
  std::atomic<bool> woken_{false};
};

}  // namespace changeover::transport
