#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "os/error.h"
#include "os/socket.h"
#include "transport/tcp/tcp_road.h"

namespace changeover::transport {

namespace {

// Parts below this are collected, so that a run of small tensors is one write.
constexpr uint64_t kStageBytesMax = 64 << 10;
constexpr uint64_t kWriteBytesMax = 1 << 20;  // per peer and turn, so that the turns go round

}  // namespace

TcpSendRoad::TcpSendRoad(TcpSendOptions options, const os::Clock& clock)
    : capabilities_{.road = "tcp", .run_bytes_max = kTcpBufferBytes},
      options_(options),
      clock_(clock),
      staged_(std::make_unique_for_overwrite<std::byte[]>(kTcpBufferBytes)) {}

Status TcpSendRoad::attach(uint32_t peer, const std::string& name, os::Fd socket) {
  drop(peer, Status(Code::kUnavailable, name + " connected anew"));
  Peer fresh;
  fresh.index = peer;
  fresh.name = fmt::format("{} ({})", name, os::peer_text(socket));
  fresh.socket = std::move(socket);
  peers_.add(std::move(fresh));
  polls_.resize(peers_.size());
  return {};
}

Status TcpSendRoad::open_stream(std::span<const uint32_t> peers, uint64_t stream_id) {
  CHANGEOVER_TRY(peers_.start_stream(peers, stream_id));
  stream_bytes_ = staged_bytes_ = lent_bytes_ = 0;
  for (Peer& peer : peers_) {
    peer.stream_bytes = 0;
  }
  return peers_.live_status();
}

Result<std::span<std::byte>> TcpSendRoad::lend(Part, uint64_t bytes, Instant deadline) {
  if (staged_bytes_ == kTcpBufferBytes) {
    CHANGEOVER_TRY(write_batch({}, deadline));
  }
  CHANGEOVER_TRY(peers_.live_status());
  lent_bytes_ = std::min(bytes, kTcpBufferBytes - staged_bytes_);
  return std::span(staged_.get() + staged_bytes_, lent_bytes_);
}

Status TcpSendRoad::commit(uint64_t bytes) {
  if (bytes > lent_bytes_) {
    return {Code::kInvalidArgument,
            fmt::format("commit of {} bytes, {} were lent", bytes, lent_bytes_)};
  }
  staged_bytes_ += bytes;
  lent_bytes_ = 0;
  return {};
}

Status TcpSendRoad::send(Part, std::span<const std::byte> bytes, Instant deadline) {
  CHANGEOVER_TRY(peers_.live_status());
  if (bytes.size() < kStageBytesMax && bytes.size() <= kTcpBufferBytes - staged_bytes_) {
    std::copy(bytes.begin(), bytes.end(), staged_.get() + staged_bytes_);
    staged_bytes_ += bytes.size();
    return {};
  }
  return write_batch(bytes, deadline);
}

Status TcpSendRoad::flush(Instant deadline) {
  look_for_hang_ups();
  if (staged_bytes_ == 0) {
    return peers_.live_status();
  }
  return write_batch({}, deadline);
}

void TcpSendRoad::drop(uint32_t peer, const Status& why) {
  if (Peer* at = peers_.find(peer)) {
    peers_.fail(*at, why);
    peers_.remove_failed();
  }
}

std::vector<PeerFailure> TcpSendRoad::take_failures() {
  return peers_.take_failures();
}

// One chunk: what is staged, then `bytes`, to every live peer of the stream.
Status TcpSendRoad::write_batch(std::span<const std::byte> bytes, Instant deadline) {
  const uint64_t payload = staged_bytes_ + bytes.size();
  const uint64_t fields[3] = {kTcpChunkMagic, peers_.stream_id(), payload};
  static_assert(sizeof fields == sizeof chunk_header_);
  std::memcpy(chunk_header_, fields, sizeof fields);
  batch_[0] = chunk_header_;
  batch_[1] = {staged_.get(), staged_bytes_};
  batch_[2] = bytes;
  const Instant start = clock_.now();
  for (Peer& peer : peers_) {
    peer.cursor = 0;
    peer.blocked = false;
    peer.progress = start;
  }
  const Status status = write_to_all(kTcpChunkHeaderBytes + payload, deadline);
  stream_bytes_ += payload;
  staged_bytes_ = 0;
  for (Peer& peer : peers_) {
    if (!status.ok() && peer.in_stream && peer.socket.valid() &&
        peer.cursor < kTcpChunkHeaderBytes + payload) {
      // It would take the next chunk's bytes for the rest of this one.
      peers_.fail(peer, Status(status.code(), fmt::format("{} was cut off in mid-chunk: {}",
                                                          peer.name, status.message())));
    }
    peer.stream_bytes = stream_bytes_;
    peer.cursor = 0;
  }
  peers_.remove_failed();
  return status.ok() ? peers_.live_status() : status;
}

Status TcpSendRoad::write_to_all(uint64_t total, Instant deadline) {
  while (true) {
    bool pending = false;
    bool all_blocked = true;
    for (Peer& peer : peers_) {
      if (peer.in_stream && peer.socket.valid() && peer.cursor < total && !peer.blocked) {
        write_some(peer, total);
      }
      const bool waits = peer.in_stream && peer.socket.valid() && peer.cursor < total;
      pending |= waits;
      all_blocked &= !waits || peer.blocked;
    }
    peers_.remove_failed();
    if (!pending) {
      return {};
    }
    if (all_blocked) {
      CHANGEOVER_TRY(wait_for_blocked(total, deadline));
    }
  }
}

void TcpSendRoad::write_some(Peer& peer, uint64_t total) {
  iovec pieces[3];
  size_t count = 0;
  uint64_t skip = peer.cursor;
  uint64_t room = kWriteBytesMax;
  for (const std::span<const std::byte> piece : batch_) {
    const uint64_t from = std::min<uint64_t>(skip, piece.size());
    const uint64_t take = std::min<uint64_t>(piece.size() - from, room);
    skip -= from;
    room -= take;
    if (take > 0) {
      pieces[count++] = {const_cast<std::byte*>(piece.data() + from), take};
    }
  }
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) {
    peer.cursor += static_cast<uint64_t>(n);
    if (peer.cursor < total) {
      peer.progress = clock_.now();
    }
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    peer.blocked = true;
  } else if (errno != EINTR) {
    peers_.fail(
        peer,
        Status(Code::kUnavailable,
               os::os_error(fmt::format("{} is gone: {}", peer.name, arrived_text(peer)), errno)
                   .message()));
  }
}

// Everybody who still has to take something is blocked: sleeps until one can go on, and drops those
// that held the stream back too long.
Status TcpSendRoad::wait_for_blocked(uint64_t total, Instant deadline) {
  Instant until = deadline;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const bool waits = peers_[i].in_stream && peers_[i].cursor < total;
    polls_[i] = {waits ? peers_[i].socket.get() : -1, POLLOUT | POLLRDHUP, 0};
    if (waits) {
      until = std::min(until, peers_[i].progress + options_.stall_limit);
    }
  }
  CHANGEOVER_TRY(os::poll_until({polls_.data(), peers_.size()}, clock_, until).status());
  const Instant now = clock_.now();
  std::string late;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    const int64_t waited_ns = (now - peer.progress).count();
    if (polls_[i].fd < 0) {
      continue;
    }
    if ((polls_[i].revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0) {
      peers_.fail(peer, Status(Code::kUnavailable, fmt::format("{} closed its connection: {}",
                                                               peer.name, arrived_text(peer))));
    } else if (polls_[i].revents != 0) {
      peer.blocked = false;
    } else if (waited_ns >= options_.stall_limit.count() || now >= deadline) {
      const std::string text = fmt::format(
          "{} took nothing for {}{}: {}", peer.name, os::duration_text(waited_ns),
          now >= deadline
              ? ", the deadline passed"
              : fmt::format(" (stall limit {})", os::duration_text(options_.stall_limit.count())),
          arrived_text(peer));
      late += now >= deadline ? (late.empty() ? "" : "; ") + text : "";
      peers_.fail(peer, Status(Code::kDeadline, text));
    }
  }
  peers_.remove_failed();
  return late.empty() ? Status() : Status(Code::kDeadline, late);
}

void TcpSendRoad::look_for_hang_ups() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    polls_[i] = {peers_[i].socket.get(), POLLRDHUP, 0};
  }
  if (!os::poll_until({polls_.data(), peers_.size()}, clock_, Instant{}).ok()) {
    return;  // The write that follows will tell.
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (polls_[i].revents != 0) {
      peers_.fail(peers_[i],
                  Status(Code::kUnavailable, fmt::format("{} closed its connection: {}",
                                                         peers_[i].name, arrived_text(peers_[i]))));
    }
  }
  peers_.remove_failed();
}

// What the peer's kernel has acknowledged, not what ours still holds for it.
std::string TcpSendRoad::arrived_text(const Peer& peer) const {
  int queued = 0;
  ::ioctl(peer.socket.get(), SIOCOUTQ, &queued);
  const uint64_t cursor = peer.cursor - std::min(peer.cursor, kTcpChunkHeaderBytes);
  const uint64_t taken = peer.stream_bytes + cursor;
  const uint64_t batch = batch_[1].size() + batch_[2].size();
  return fmt::format("{} of {} bytes had arrived",
                     taken - std::min<uint64_t>(taken, static_cast<uint64_t>(std::max(queued, 0))),
                     std::max(taken, peer.stream_bytes + (peer.cursor > 0 ? batch : 0)));
}

}  // namespace changeover::transport
