// Which ranks a sending road has, which of them are in the stream, and who was lost and why: the
// bookkeeping that all roads share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/fd.h"
#include "transport/transport.h"

namespace changeover::transport {

// Who was lost, until somebody asks. The last one's words are kept for the stream's own failure.
class PeerFailures {
 public:
  void start_stream();
  void add(uint32_t peer, Status why);
  std::vector<PeerFailure> take() { return std::exchange(failures_, {}); }
  const std::string& last() const { return last_; }

 private:
  std::vector<PeerFailure> failures_;
  std::string last_;
};

struct SendPeer {
  uint32_t index = 0;
  std::string name;  // for errors: "a/1 (127.0.0.1:40112)"
  os::Fd socket;     // closed as soon as it has failed
  bool in_stream = false;
};

// kInvalidArgument unless `next` is larger than `last`.
Status check_stream_id(uint64_t next, uint64_t last);
Status nobody_left(const std::string& last_failure);

// `Peer` is a SendPeer with what its road adds. Failing one leaves it in its place, so that loops
// over all of them may fail any: remove_failed() follows each such loop.
template <typename Peer>
class SendPeers {
 public:
  void add(Peer peer) { all_.push_back(std::move(peer)); }
  Peer* find(uint32_t index) {
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const Peer& peer) { return peer.index == index; });
    return at == all_.end() ? nullptr : &*at;
  }
  size_t size() const { return all_.size(); }
  Peer& operator[](size_t i) { return all_[i]; }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

  // These peers and no others are in the stream; who is not attached is reported as lost.
  Status start_stream(std::span<const uint32_t> indices, uint64_t stream_id);
  uint64_t stream_id() const { return stream_id_; }
  // Each peer fails once.
  void fail(Peer& peer, Status why);
  void remove_failed() {
    std::erase_if(all_, [](const Peer& peer) { return !peer.socket.valid(); });
  }
  std::vector<PeerFailure> take_failures() { return failures_.take(); }
  // kUnavailable when no peer is left in the stream.
  Status live_status() const;

 private:
  std::vector<Peer> all_;
  PeerFailures failures_;
  uint64_t stream_id_ = 0;
};

template <typename Peer>
Status SendPeers<Peer>::start_stream(std::span<const uint32_t> indices, uint64_t stream_id) {
  CHANGEOVER_TRY(check_stream_id(stream_id, stream_id_));
  stream_id_ = stream_id;
  failures_.start_stream();
  for (Peer& peer : all_) {
    peer.in_stream = false;
  }
  for (const uint32_t index : indices) {
    if (Peer* peer = find(index)) {
      peer->in_stream = true;
    } else {
      failures_.add(index,
                    {Code::kUnavailable, "peer " + std::to_string(index) + " is not attached"});
    }
  }
  return {};
}

template <typename Peer>
void SendPeers<Peer>::fail(Peer& peer, Status why) {
  if (peer.socket.valid()) {
    peer.socket.reset();
    failures_.add(peer.index, std::move(why));
  }
}

template <typename Peer>
Status SendPeers<Peer>::live_status() const {
  const bool live =
      std::any_of(all_.begin(), all_.end(), [](const Peer& peer) { return peer.in_stream; });
  return live ? Status() : nobody_left(failures_.last());
}

}  // namespace changeover::transport
