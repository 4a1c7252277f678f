#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>

#include "os/error.h"
#include "os/socket.h"
#include "transport/tcp/tcp_road.h"

namespace changeover::transport {

namespace {

// Below this a read of its own costs more than a copy out of the buffer.
constexpr uint64_t kDirectBytesMin = 64 << 10;
// How far a read for a chunk's header may run into what the caller may want in its own memory.
constexpr uint64_t kHeaderReadBytes = 16 << 10;

}  // namespace

Result<std::unique_ptr<TcpReceiveRoad>> TcpReceiveRoad::create(os::Fd socket, std::string publisher,
                                                               const os::Clock& clock) {
  CHANGEOVER_TRY_ASSIGN(os::Doorbell bell, os::Doorbell::create());
  return std::unique_ptr<TcpReceiveRoad>(
      new TcpReceiveRoad(std::move(socket), std::move(publisher), std::move(bell), clock));
}

TcpReceiveRoad::TcpReceiveRoad(os::Fd socket, std::string publisher, os::Doorbell bell,
                               const os::Clock& clock)
    : capabilities_{.road = "tcp", .run_bytes_max = kTcpBufferBytes},
      clock_(clock),
      socket_(std::move(socket)),
      publisher_(std::move(publisher)),
      bell_(std::move(bell)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kTcpBufferBytes)) {}

Status TcpReceiveRoad::open_stream(uint64_t stream_id) {
  if (stream_id <= stream_id_) {
    return {Code::kInvalidArgument,
            fmt::format("stream {} after stream {}: ids must grow", stream_id, stream_id_)};
  }
  stream_id_ = stream_id;
  skip_left_ += chunk_left_;
  chunk_left_ = 0;
  stream_bytes_ = 0;
  if (connected_) {
    failure_ = Status();
  }
  return failure_;
}

Result<Run> TcpReceiveRoad::receive(Part, uint64_t bytes_max, std::span<std::byte> into,
                                    Instant deadline) {
  CHANGEOVER_TRY(failure_);
  if (bytes_max == 0) {
    return Status(Code::kInvalidArgument, "receive of 0 bytes");
  }
  const Instant start = clock_.now();
  while (true) {
    if (woken_.exchange(false)) {
      bell_.clear();
      return Status(Code::kTryLater, "woken");
    }
    CHANGEOVER_TRY(take_chunk_headers());
    const uint64_t wanted = std::min(bytes_max, chunk_left_);
    Got got = Got::kNothing;
    if (wanted > 0 && begin_ < end_) {
      const Run run{.data = buffer_.get() + begin_, .bytes = std::min(wanted, end_ - begin_)};
      begin_ += run.bytes;
      chunk_left_ -= run.bytes;
      stream_bytes_ += run.bytes;
      return run;
    }
    if (std::min<uint64_t>(wanted, into.size()) >= kDirectBytesMin) {
      Run run{.data = into.data()};
      got = read_into(into.first(std::min<uint64_t>(wanted, into.size())), run.bytes);
      if (got == Got::kBytes) {
        chunk_left_ -= run.bytes;
        stream_bytes_ += run.bytes;
        return run;
      }
    } else {
      got = fill(wanted > 0 || skip_left_ > 0 ? kTcpBufferBytes : kHeaderReadBytes);
    }
    if (got == Got::kEnd) {
      return failure_;
    }
    if (got == Got::kNothing) {
      CHANGEOVER_TRY(wait(start, deadline, bytes_max));
    }
  }
}

// Leaves `begin_` at bytes of this stream, or at a header that is not whole yet. Chunks of earlier
// streams are skipped.
Status TcpReceiveRoad::take_chunk_headers() {
  while (chunk_left_ == 0) {
    const uint64_t skip = std::min(skip_left_, end_ - begin_);
    begin_ += skip;
    skip_left_ -= skip;
    if (skip_left_ > 0 || end_ - begin_ < kTcpChunkHeaderBytes) {
      return {};
    }
    uint64_t fields[3];  // magic, stream id, bytes
    std::memcpy(fields, buffer_.get() + begin_, sizeof fields);
    if (fields[0] != kTcpChunkMagic) {
      connected_ = false;
      return fail({Code::kCorrupt,
                   fmt::format("{} sent no chunk header where one was due (first bytes {:#018x}): "
                               "not a changeover data connection, or out of step",
                               publisher_, fields[0])});
    }
    if (fields[1] > stream_id_) {
      // Kept in the buffer: open_stream() with this id finds it.
      return fail({Code::kUnavailable,
                   fmt::format("{} began its next stream before the end of this one: {} bytes had "
                               "arrived",
                               publisher_, stream_bytes_)});
    }
    begin_ += kTcpChunkHeaderBytes;
    (fields[1] == stream_id_ ? chunk_left_ : skip_left_) = fields[2];
  }
  return {};
}

TcpReceiveRoad::Got TcpReceiveRoad::fill(uint64_t bytes_max) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (end_ == kTcpBufferBytes) {  // part of a header at the very end
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  uint64_t got = 0;
  const Got result =
      read_into({buffer_.get() + end_, std::min(bytes_max, kTcpBufferBytes - end_)}, got);
  end_ += got;
  return result;
}

TcpReceiveRoad::Got TcpReceiveRoad::read_into(std::span<std::byte> into, uint64_t& got) {
  const ssize_t n = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
  if (n > 0) {
    got = static_cast<uint64_t>(n);
    return Got::kBytes;
  }
  return ended(n);
}

TcpReceiveRoad::Got TcpReceiveRoad::ended(ssize_t result) {
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return Got::kNothing;
  }
  connected_ = false;
  const std::string arrived = fmt::format("{} bytes had arrived", stream_bytes_);
  failure_ = result == 0 ? Status(Code::kUnavailable,
                                  fmt::format("{} closed the connection: {}", publisher_, arrived))
                         : Status(Code::kUnavailable,
                                  os::os_error(publisher_ + ": " + arrived, errno).message());
  return Got::kEnd;
}

Status TcpReceiveRoad::wait(Instant start, Instant deadline, uint64_t bytes_max) {
  pollfd polls[2] = {{socket_.get(), POLLIN, 0}, {bell_.fd().get(), POLLIN, 0}};
  CHANGEOVER_TRY_ASSIGN(const int ready, os::poll_until(polls, clock_, deadline));
  if (polls[1].revents != 0) {
    bell_.clear();  // wake() said so before it rang: the caller's loop sees it.
  }
  if (ready > 0) {
    return {};
  }
  return fail({Code::kDeadline,
               fmt::format("waited {} for {}: {} bytes had arrived, up to {} more were due",
                           os::duration_text((clock_.now() - start).count()), publisher_,
                           stream_bytes_, bytes_max)});
}

Status TcpReceiveRoad::fail(Status why) {
  failure_ = why;
  return why;
}

Status TcpReceiveRoad::release(const Run&) {
  return {};
}

void TcpReceiveRoad::wake() {
  woken_.store(true);
  bell_.ring();
}

void TcpReceiveRoad::close() {
  connected_ = false;
  socket_.reset();
  failure_ = Status(Code::kUnavailable, "this rank left the road to " + publisher_);
}

}  // namespace changeover::transport
