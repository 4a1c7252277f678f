// The publisher's side of waiting: credits, sleeping readers, dead and slow ones.
#include <algorithm>

#include <fmt/format.h>

#include "os/error.h"
#include "transport/shm/shm_road.h"

namespace changeover::transport {

namespace {

const ShmControl& control_of(const os::Mapping& mapping) {
  return *reinterpret_cast<const ShmControl*>(mapping.data());
}

}  // namespace

void ShmSendRoad::ring_if_waiting(Peer& peer) {
  const uint64_t wait = control_of(peer.control).waiting.load();
  if (wait != 0 && wait != peer.rung) {
    peer.rung = wait;
    peer.bell.ring();
  }
}

bool ShmSendRoad::holds_back(const Peer& peer) const {
  return peer.in_stream && peer.socket.valid() && peer.consumed + view_.slots() <= count_;
}

// The page is the reader's to write: what it says is believed only within what was published.
void ShmSendRoad::read_credits() {
  for (Peer& peer : peers_) {
    const uint64_t consumed = control_of(peer.control).consumed.load();
    if (!peer.in_stream || consumed <= peer.consumed) {
      continue;  // also what it says of a stream before this one
    }
    if (consumed > count_) {
      fail(peer, Status(Code::kCorrupt, fmt::format("{} credited slot {} of {} published",
                                                    peer.name, consumed, count_)));
      continue;
    }
    peer.consumed = consumed;
    peer.progress = clock_.now();
  }
  peers_.remove_failed();
}

bool ShmSendRoad::ring_is_full() {
  read_credits();
  return std::any_of(peers_.begin(), peers_.end(),
                     [this](const Peer& peer) { return holds_back(peer); });
}

Status ShmSendRoad::wait_for_room(Instant deadline) {
  if (!ring_is_full()) {
    return peers_.live_status();
  }
  const Instant start = clock_.now();
  for (Peer& peer : peers_) {
    peer.progress = std::max(peer.progress, start);
  }
  while (true) {
    // Said before the credits are read again: a reader that credits after that rings.
    view_.header().publisher_waiting.store(1);
    const bool full = ring_is_full();
    const Status waited = full ? wait_once(deadline) : Status();
    view_.header().publisher_waiting.store(0);
    CHANGEOVER_TRY(waited);
    CHANGEOVER_TRY(peers_.live_status());
    if (!full) {
      return {};
    }
  }
}

// Sleeps until a credit, a hang-up, or the time of the first reader is over.
Status ShmSendRoad::wait_once(Instant deadline) {
  Instant until = deadline;
  polls_[0] = {credit_bell_.fd().get(), POLLIN, 0};
  for (size_t i = 0; i < peers_.size(); ++i) {
    polls_[i + 1] = {peers_[i].socket.get(), POLLRDHUP, 0};
    if (holds_back(peers_[i])) {
      until = std::min(until, peers_[i].progress + options_.stall_limit);
    }
  }
  CHANGEOVER_TRY_ASSIGN(const int ready,
                        os::poll_until(std::span(polls_).first(1 + peers_.size()), clock_, until));
  credit_bell_.clear();
  look_at_sockets(ready);
  read_credits();
  const Instant now = clock_.now();
  std::string late;
  for (Peer& peer : peers_) {
    const int64_t waited_ns = (now - peer.progress).count();
    if (!holds_back(peer) || (waited_ns < options_.stall_limit.count() && now < deadline)) {
      continue;
    }
    const std::string text = fmt::format(
        "{} read nothing for {}{}: {}", peer.name, os::duration_text(waited_ns),
        now >= deadline
            ? ", the deadline passed"
            : fmt::format(" (stall limit {})", os::duration_text(options_.stall_limit.count())),
        arrived_text(peer));
    late += now >= deadline ? (late.empty() ? "" : "; ") + text : "";
    fail(peer, Status(Code::kDeadline, text));
  }
  peers_.remove_failed();
  return late.empty() ? Status() : Status(Code::kDeadline, late);
}

void ShmSendRoad::look_at_sockets(int ready) {
  if (ready == 0) {
    return;
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (polls_[i + 1].revents != 0) {
      fail(peers_[i],
           Status(Code::kUnavailable, fmt::format("{} closed its connection: {}", peers_[i].name,
                                                  arrived_text(peers_[i]))));
    }
  }
  peers_.remove_failed();
}

std::string ShmSendRoad::arrived_text(const Peer& peer) const {
  const uint64_t arrived = peer.consumed == peer.start
                               ? 0
                               : stream_bytes_at_[(peer.consumed - 1) % stream_bytes_at_.size()];
  return fmt::format("{} of {} bytes had been read", arrived, stream_bytes_);
}

void ShmSendRoad::fail(Peer& peer, Status why) {
  if (peer.socket.valid()) {
    // In this order: a reader that wakes by the bell or the hang-up sees that it is no member.
    view_.member(peer.index).generation.store(0);
    peer.bell.ring();
    peers_.fail(peer, std::move(why));
  }
}

}  // namespace changeover::transport
