#include <algorithm>

#include <fmt/format.h>

#include "os/error.h"
#include "os/socket.h"
#include "transport/shm/shm_road.h"

namespace changeover::transport {

namespace {

constexpr size_t kDescriptors = 4;  // ring, control page, our bell, the publisher's bell

// What the peer handed over is believed only as far as it was checked.
Result<ShmRing> check_ring(const os::Mapping& ring, const std::string& publisher) {
  const ShmHeader& header = *reinterpret_cast<const ShmHeader*>(ring.data());
  const uint64_t slots = header.slots;
  const uint64_t slot_bytes = header.slot_bytes;
  if (header.magic != kShmMagic || slots < 2 || slots > kShmSlotsMax || slot_bytes == 0 ||
      slot_bytes % kShmPageBytes != 0 || slot_bytes > kShmSlotBytesMax ||
      ring.bytes() != shm_ring_bytes(slots, slot_bytes)) {
    return Status(Code::kCorrupt,
                  fmt::format("{} handed over {} bytes that are no ring of this layout (magic "
                              "{:#x}, {} slots of {} bytes)",
                              publisher, ring.bytes(), header.magic, slots, slot_bytes));
  }
  return ShmRing(ring.data(), slots, slot_bytes);
}

}  // namespace

Result<std::unique_ptr<ShmReceiveRoad>> ShmReceiveRoad::create(os::Fd socket, std::string publisher,
                                                               const os::Clock& clock,
                                                               Instant deadline) {
  CHANGEOVER_TRY_ASSIGN(std::vector<os::Fd> fds,
                        os::receive_descriptors(socket, kDescriptors, clock, deadline, publisher));
  CHANGEOVER_TRY_ASSIGN(const uint64_t ring_bytes, os::size_of(fds[0]));
  CHANGEOVER_TRY_ASSIGN(const uint64_t control_bytes, os::size_of(fds[1]));
  if (ring_bytes < kShmDataAt || control_bytes != kShmPageBytes || !os::size_is_sealed(fds[0]) ||
      !os::size_is_sealed(fds[1])) {
    return Status(Code::kCorrupt,
                  fmt::format("{} handed over a ring of {} bytes and credits of {} bytes (at least "
                              "{} and exactly {} were due, both sealed)",
                              publisher, ring_bytes, control_bytes, kShmDataAt, kShmPageBytes));
  }
  CHANGEOVER_TRY_ASSIGN(os::Mapping ring,
                        os::Mapping::map(fds[0], ring_bytes, os::Access::kReadOnly));
  CHANGEOVER_TRY_ASSIGN(os::Mapping control,
                        os::Mapping::map(fds[1], kShmPageBytes, os::Access::kReadWrite));
  // Each number is read once: what was checked is what is used.
  CHANGEOVER_TRY_ASSIGN(const ShmRing view, check_ring(ring, publisher));
  const auto* given = reinterpret_cast<const volatile ShmControl*>(control.data());
  const Seat seat = {.index = given->index, .generation = given->generation};
  if (seat.index >= kShmReadersMax) {
    return Status(Code::kCorrupt, publisher + " handed over a reader index that is out of range");
  }
  ring.populate(os::Access::kReadOnly);
  CHANGEOVER_TRY_ASSIGN(os::Doorbell wake_bell, os::Doorbell::create());
  return std::unique_ptr<ShmReceiveRoad>(
      new ShmReceiveRoad(std::move(socket), std::move(publisher), clock, std::move(ring), view,
                         std::move(control), seat, os::Doorbell(std::move(fds[2])),
                         os::Doorbell(std::move(fds[3])), std::move(wake_bell)));
}

ShmReceiveRoad::ShmReceiveRoad(os::Fd socket, std::string publisher, const os::Clock& clock,
                               os::Mapping ring, const ShmRing& view, os::Mapping control,
                               const Seat& seat, os::Doorbell bell, os::Doorbell credit_bell,
                               os::Doorbell wake_bell)
    : capabilities_{.road = "shm", .lends_memory = true, .run_bytes_max = view.slot_bytes()},
      clock_(clock),
      socket_(std::move(socket)),
      publisher_(std::move(publisher)),
      ring_(std::move(ring)),
      control_mapping_(std::move(control)),
      view_(view),
      control_(*reinterpret_cast<ShmControl*>(control_mapping_.data())),
      bell_(std::move(bell)),
      credit_bell_(std::move(credit_bell)),
      wake_bell_(std::move(wake_bell)),
      index_(static_cast<uint32_t>(seat.index)),
      generation_(seat.generation) {}

Status ShmReceiveRoad::open_stream(uint64_t stream_id) {
  if (stream_id <= stream_id_) {
    return {Code::kInvalidArgument,
            fmt::format("stream {} after stream {}: ids must grow", stream_id, stream_id_)};
  }
  stream_id_ = stream_id;
  joined_ = false;
  slot_offset_ = slot_bytes_ = run_bytes_ = stream_bytes_ = 0;
  if (socket_.valid()) {
    failure_ = Status();
  }
  return failure_;
}

Result<Run> ShmReceiveRoad::receive(Part, uint64_t bytes_max, std::span<std::byte>,
                                    Instant deadline) {
  CHANGEOVER_TRY(failure_);
  if (bytes_max == 0 || run_bytes_ != 0) {
    return Status(Code::kInvalidArgument,
                  bytes_max == 0 ? "receive of 0 bytes" : "receive before the run was released");
  }
  const Instant start = clock_.now();
  while (true) {
    if (woken_.exchange(false)) {
      wake_bell_.clear();
      return Status(Code::kTryLater, "woken");
    }
    const Result<bool> ready = look();
    if (!ready.ok()) {
      return fail(ready.status());
    }
    if (*ready) {
      run_bytes_ = std::min(bytes_max, slot_bytes_ - slot_offset_);
      return Run{.data = view_.data(count_) + slot_offset_, .bytes = run_bytes_, .token = count_};
    }
    CHANGEOVER_TRY(wait(start, deadline, bytes_max));
  }
}

Result<bool> ShmReceiveRoad::look() {
  const ShmMember& member = view_.member(index_);
  if (!joined_ && member.stream_id.load() == stream_id_) {
    const uint64_t first = member.start.load();
    if (member.stream_id.load() == stream_id_) {
      joined_ = true;
      count_ = first;
    }
  }
  CHANGEOVER_TRY(membership());
  if (!joined_ || slot_bytes_ != 0) {
    return joined_;
  }
  const ShmSlot& slot = view_.slot(count_);
  const uint64_t sequence = slot.sequence.load();
  if (sequence < shm_written(count_)) {
    return false;
  }
  const uint64_t bytes = slot.bytes.load(std::memory_order_relaxed);
  const uint64_t stream_id = slot.stream_id.load(std::memory_order_relaxed);
  order_reads();
  if (slot.sequence.load(std::memory_order_relaxed) != shm_written(count_) ||
      stream_id != stream_id_) {
    return Status(Code::kUnavailable,
                  fmt::format("slot {} was written again before this rank read it", count_));
  }
  if (bytes == 0 || bytes > view_.slot_bytes()) {
    return Status(Code::kCorrupt, fmt::format("slot {} says {} bytes, it has room for {}", count_,
                                              bytes, view_.slot_bytes()));
  }
  slot_bytes_ = bytes;
  slot_offset_ = 0;
  return true;
}

Status ShmReceiveRoad::membership() const {
  const ShmMember& member = view_.member(index_);
  if (member.generation.load() != generation_) {
    return {Code::kUnavailable, "it dropped this rank"};
  }
  const uint64_t stream_id = member.stream_id.load();
  if (stream_id > stream_id_ || (joined_ && stream_id != stream_id_)) {
    return {Code::kUnavailable, stream_id == 0
                                    ? "it left this rank out of the stream"
                                    : "it began its next stream before the end of this one"};
  }
  return {};
}

Status ShmReceiveRoad::wait(Instant start, Instant deadline, uint64_t bytes_max) {
  if (publisher_gone_) {
    return fail({Code::kUnavailable, "it closed the connection"});
  }
  // Said before looking again: a publisher that publishes after that rings.
  control_.waiting.store(++waits_);
  const Result<bool> ready = look();
  if (!ready.ok() || *ready) {
    control_.waiting.store(0);
    return {};
  }
  pollfd polls[3] = {{bell_.fd().get(), POLLIN, 0},
                     {wake_bell_.fd().get(), POLLIN, 0},
                     {socket_.get(), POLLRDHUP, 0}};
  const Result<int> woke = os::poll_until(polls, clock_, deadline);
  control_.waiting.store(0);
  CHANGEOVER_TRY(woke.status());
  if (polls[0].revents != 0) {
    bell_.clear();
  }
  if (polls[1].revents != 0) {
    wake_bell_.clear();  // wake() said so before it rang: the caller's loop sees it.
  }
  publisher_gone_ = polls[2].revents != 0;  // after a last look at what it left
  if (*woke > 0) {
    return {};
  }
  return fail(
      {Code::kDeadline, fmt::format("waited {}, up to {} more bytes were due",
                                    os::duration_text((clock_.now() - start).count()), bytes_max)});
}

Status ShmReceiveRoad::release(const Run& run) {
  CHANGEOVER_TRY(failure_);
  if (run.bytes != run_bytes_ || run.token != count_) {
    return {Code::kInvalidArgument, "release of a run that is not out"};
  }
  run_bytes_ = 0;
  order_reads();
  if (view_.slot(count_).sequence.load() != shm_written(count_)) {
    return fail({Code::kUnavailable,
                 fmt::format("slot {} was written again while this rank read it", count_)});
  }
  if (Status member = membership(); !member.ok()) {
    return fail(member);
  }
  slot_offset_ += run.bytes;
  stream_bytes_ += run.bytes;
  if (slot_offset_ == slot_bytes_) {
    credit_slot();
  }
  return {};
}

void ShmReceiveRoad::credit_slot() {
  slot_bytes_ = slot_offset_ = 0;
  control_.consumed.store(++count_);
  if (view_.header().publisher_waiting.load() != 0) {
    credit_bell_.ring();
  }
}

Status ShmReceiveRoad::fail(Status why) {
  failure_ = Status(why.code(), fmt::format("{}: {}: {} bytes had arrived", publisher_,
                                            why.message(), stream_bytes_));
  return failure_;
}

void ShmReceiveRoad::wake() {
  woken_.store(true);
  wake_bell_.ring();
}

void ShmReceiveRoad::close() {
  socket_.reset();
  failure_ = Status(Code::kUnavailable, "this rank left the road to " + publisher_);
}

}  // namespace changeover::transport
