#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "os/error.h"
#include "os/socket.h"
#include "transport/shm/shm_road.h"

namespace changeover::transport {

Result<std::unique_ptr<ShmSendRoad>> ShmSendRoad::create(ShmSendOptions options,
                                                         const os::Clock& clock) {
  if (options.slots < 2 || options.slots > kShmSlotsMax || options.slot_bytes == 0 ||
      options.slot_bytes % kShmPageBytes != 0 || options.slot_bytes > kShmSlotBytesMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("ring of {} slots of {} bytes: 2 to {} slots, each a multiple of {} "
                              "and at most {} bytes",
                              options.slots, options.slot_bytes, kShmSlotsMax, kShmPageBytes,
                              kShmSlotBytesMax));
  }
  const uint64_t bytes = shm_ring_bytes(options.slots, options.slot_bytes);
  CHANGEOVER_TRY_ASSIGN(os::Fd fd, os::create_memory("changeover-ring", bytes));
  CHANGEOVER_TRY_ASSIGN(os::Mapping ring, os::Mapping::map(fd, bytes, os::Access::kReadWrite));
  ring.populate(os::Access::kReadWrite);
  CHANGEOVER_TRY(os::forbid_new_writers(fd));
  CHANGEOVER_TRY_ASSIGN(os::Fd read_only, os::reopen_read_only(fd));
  CHANGEOVER_TRY_ASSIGN(os::Doorbell credit_bell, os::Doorbell::create());
  return std::unique_ptr<ShmSendRoad>(new ShmSendRoad(options, clock, std::move(read_only),
                                                      std::move(ring), std::move(credit_bell)));
}

ShmSendRoad::ShmSendRoad(ShmSendOptions options, const os::Clock& clock, os::Fd ring_fd,
                         os::Mapping ring, os::Doorbell credit_bell)
    : capabilities_{.road = "shm", .lends_memory = true, .run_bytes_max = options.slot_bytes},
      options_(options),
      clock_(clock),
      ring_fd_(std::move(ring_fd)),
      ring_(std::move(ring)),
      view_(ring_.data(), options.slots, options.slot_bytes),
      credit_bell_(std::move(credit_bell)),
      polls_(1),
      stream_bytes_at_(2 * options.slots) {
  ShmHeader& header = view_.header();  // The memory is fresh: everything else in it is zero.
  header.magic = kShmMagic;
  header.slots = options.slots;
  header.slot_bytes = options.slot_bytes;
}

Status ShmSendRoad::attach(uint32_t peer, const std::string& name, os::Fd socket,
                           Instant deadline) {
  if (peer >= kShmReadersMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} is reader {}: a ring has room for {}", name, peer, kShmReadersMax)};
  }
  drop(peer, Status(Code::kUnavailable, name + " connected anew"));
  CHANGEOVER_TRY_ASSIGN(const os::Fd control_fd,
                        os::create_memory("changeover-credits", kShmPageBytes));
  {
    CHANGEOVER_TRY_ASSIGN(os::Mapping writable,
                          os::Mapping::map(control_fd, kShmPageBytes, os::Access::kReadWrite));
    auto* control = new (writable.data()) ShmControl{};
    control->index = peer;
    control->generation = ++generation_;
  }
  CHANGEOVER_TRY_ASSIGN(os::Mapping control,
                        os::Mapping::map(control_fd, kShmPageBytes, os::Access::kReadOnly));
  CHANGEOVER_TRY_ASSIGN(os::Doorbell bell, os::Doorbell::create());
  const std::string full_name = fmt::format("{} ({})", name, os::peer_text(socket));
  ShmMember& member = view_.member(peer);
  member.stream_id.store(0);
  member.generation.store(generation_);
  const int descriptors[] = {ring_fd_.get(), control_fd.get(), bell.fd().get(),
                             credit_bell_.fd().get()};
  if (Status sent = os::send_descriptors(socket, descriptors, clock_, deadline, full_name);
      !sent.ok()) {
    member.generation.store(0);
    return sent;
  }
  Peer fresh(std::move(bell));
  fresh.index = peer;
  fresh.socket = std::move(socket);
  fresh.name = full_name;
  fresh.control = std::move(control);
  peers_.add(std::move(fresh));
  polls_.resize(1 + peers_.size());
  return {};
}

Status ShmSendRoad::open_stream(std::span<const uint32_t> peers, uint64_t stream_id) {
  CHANGEOVER_TRY(peers_.start_stream(peers, stream_id));
  stream_bytes_ = slot_bytes_ = lent_bytes_ = 0;  // a slot that was being filled starts over
  for (Peer& peer : peers_) {
    ShmMember& member = view_.member(peer.index);
    member.stream_id.store(0);
    if (peer.in_stream) {
      peer.start = peer.consumed = count_;
      member.start.store(count_);
      member.stream_id.store(stream_id);
      ring_if_waiting(peer);
    }
  }
  return peers_.live_status();
}

Result<std::span<std::byte>> ShmSendRoad::lend(Part, uint64_t bytes, Instant deadline) {
  CHANGEOVER_TRY(open_slot(deadline));
  lent_bytes_ = std::min(bytes, view_.slot_bytes() - slot_bytes_);
  return std::span(view_.data(count_) + slot_bytes_, lent_bytes_);
}

Status ShmSendRoad::commit(uint64_t bytes) {
  if (bytes > lent_bytes_) {
    return {Code::kInvalidArgument,
            fmt::format("commit of {} bytes, {} were lent", bytes, lent_bytes_)};
  }
  lent_bytes_ = 0;
  slot_bytes_ += bytes;
  stream_bytes_ += bytes;
  if (slot_bytes_ == view_.slot_bytes()) {
    publish_slot();
  }
  return {};
}

Status ShmSendRoad::send(Part part, std::span<const std::byte> bytes, Instant deadline) {
  while (!bytes.empty()) {
    CHANGEOVER_TRY_ASSIGN(const std::span<std::byte> room, lend(part, bytes.size(), deadline));
    std::memcpy(room.data(), bytes.data(), room.size());
    CHANGEOVER_TRY(commit(room.size()));
    bytes = bytes.subspan(room.size());
  }
  return {};
}

Status ShmSendRoad::flush(Instant) {
  if (slot_open_ && slot_bytes_ > 0) {
    publish_slot();
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    polls_[i + 1] = {peers_[i].socket.get(), POLLRDHUP, 0};
  }
  polls_[0] = {-1, 0, 0};
  CHANGEOVER_TRY_ASSIGN(const int ready, os::poll_until(std::span(polls_).first(1 + peers_.size()),
                                                        clock_, Instant{}));
  look_at_sockets(ready);
  return peers_.live_status();
}

void ShmSendRoad::drop(uint32_t peer, const Status& why) {
  if (Peer* at = peers_.find(peer)) {
    fail(*at, why);
    peers_.remove_failed();
  }
}

std::vector<PeerFailure> ShmSendRoad::take_failures() {
  return peers_.take_failures();
}

Status ShmSendRoad::open_slot(Instant deadline) {
  CHANGEOVER_TRY(peers_.live_status());
  if (slot_open_) {
    return {};
  }
  CHANGEOVER_TRY(wait_for_room(deadline));
  // A full barrier: no byte of the new content is seen under the old sequence.
  view_.slot(count_).sequence.exchange(shm_being_written(count_));
  slot_open_ = true;
  slot_bytes_ = 0;
  return {};
}

void ShmSendRoad::publish_slot() {
  ShmSlot& slot = view_.slot(count_);
  slot.stream_id.store(peers_.stream_id(), std::memory_order_relaxed);
  slot.bytes.store(slot_bytes_, std::memory_order_relaxed);
  slot.sequence.exchange(shm_written(count_));
  stream_bytes_at_[count_ % stream_bytes_at_.size()] = stream_bytes_;
  ++count_;
  slot_open_ = false;
  slot_bytes_ = 0;
  for (Peer& peer : peers_) {
    if (peer.in_stream) {
      ring_if_waiting(peer);
    }
  }
}

}  // namespace changeover::transport
