#include "transport/file/file_road.h"

#include <algorithm>

#include <fmt/format.h>

namespace changeover::transport {

namespace {

constexpr uint64_t kStagedBytes = 1 << 20;
constexpr uint64_t kStageBytesMax = 64 << 10;  // larger parts are written from where they lie

}  // namespace

FileSendRoad::FileSendRoad(std::string path)
    : capabilities_{.road = "file", .drops_one_peer = false},
      path_(std::move(path)),
      staged_(std::make_unique_for_overwrite<std::byte[]>(kStagedBytes)) {}

Status FileSendRoad::open_stream(std::span<const uint32_t> peers, uint64_t) {
  if (peers.size() != 1 || peers[0] != 0) {
    return {Code::kInvalidArgument, path_ + ": a file is one peer, index 0"};
  }
  file_.reset();
  failures_.start_stream();
  staged_bytes_ = lent_bytes_ = 0;
  CHANGEOVER_TRY_ASSIGN(file_, os::AtomicFile::create(path_));
  return {};
}

Result<std::span<std::byte>> FileSendRoad::lend(Part, uint64_t bytes, Instant) {
  if (staged_bytes_ == kStagedBytes) {
    CHANGEOVER_TRY(write_staged());
  }
  lent_bytes_ = std::min(bytes, kStagedBytes - staged_bytes_);
  return std::span(staged_.get() + staged_bytes_, lent_bytes_);
}

Status FileSendRoad::commit(uint64_t bytes) {
  if (bytes > lent_bytes_) {
    return {Code::kInvalidArgument,
            fmt::format("commit of {} bytes, {} were lent", bytes, lent_bytes_)};
  }
  staged_bytes_ += bytes;
  lent_bytes_ = 0;
  return {};
}

Status FileSendRoad::send(Part, std::span<const std::byte> bytes, Instant) {
  if (bytes.size() < kStageBytesMax && bytes.size() <= kStagedBytes - staged_bytes_) {
    std::copy(bytes.begin(), bytes.end(), staged_.get() + staged_bytes_);
    staged_bytes_ += bytes.size();
    return {};
  }
  CHANGEOVER_TRY(write_staged());
  return write(bytes);
}

Status FileSendRoad::flush(Instant) {
  return write_staged();
}

Status FileSendRoad::finish() {
  CHANGEOVER_TRY(write_staged());
  const Status status = file_->commit();
  if (!status.ok()) {
    return failed(status);
  }
  file_.reset();
  return {};
}

Status FileSendRoad::write_staged() {
  CHANGEOVER_TRY(write({staged_.get(), staged_bytes_}));
  staged_bytes_ = 0;
  return {};
}

Status FileSendRoad::write(std::span<const std::byte> bytes) {
  if (file_ == nullptr) {
    return {Code::kUnavailable, path_ + ": no recording is open"};
  }
  const Status status = file_->write(bytes);
  return status.ok() ? status : failed(status);
}

// The partial file goes at once: where the disk is full that is what frees it.
Status FileSendRoad::failed(const Status& why) {
  drop(0, why);
  return why;
}

void FileSendRoad::drop(uint32_t peer, const Status& why) {
  if (peer == 0 && file_ != nullptr) {
    file_.reset();
    failures_.add(0, why);
  }
}

std::vector<PeerFailure> FileSendRoad::take_failures() {
  return failures_.take();
}

Result<std::unique_ptr<FileReceiveRoad>> FileReceiveRoad::create(const std::string& path) {
  CHANGEOVER_TRY_ASSIGN(os::Mapping mapping, os::map_file(path));
  return std::unique_ptr<FileReceiveRoad>(new FileReceiveRoad(path, std::move(mapping)));
}

FileReceiveRoad::FileReceiveRoad(std::string path, os::Mapping mapping)
    : capabilities_{.road = "file", .drops_one_peer = false},
      path_(std::move(path)),
      mapping_(std::move(mapping)) {}

Status FileReceiveRoad::open_stream(uint64_t) {
  offset_ = 0;
  return {};
}

Result<Run> FileReceiveRoad::receive(Part, uint64_t bytes_max, std::span<std::byte>, Instant) {
  if (woken_.exchange(false)) {
    return Status(Code::kTryLater, "woken");
  }
  if (closed_) {
    return Status(Code::kUnavailable, path_ + ": closed");
  }
  if (bytes_max == 0) {
    return Status(Code::kInvalidArgument, "receive of 0 bytes");
  }
  if (bytes_left() == 0) {
    return Status(Code::kCorrupt,
                  fmt::format("{}: the recording ends after {} bytes, up to {} more were due",
                              path_, mapping_.bytes(), bytes_max));
  }
  const Run run{.data = mapping_.data() + offset_, .bytes = std::min(bytes_max, bytes_left())};
  offset_ += run.bytes;
  return run;
}

Status FileReceiveRoad::release(const Run&) {
  return {};
}

void FileReceiveRoad::wake() {
  woken_.store(true);
}

void FileReceiveRoad::close() {
  closed_ = true;
}

}  // namespace changeover::transport
