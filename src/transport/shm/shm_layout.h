// What lies where in the shared memory of the shm road. Both sides run the same build of the
// library; the magic carries the layout's number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <changeover/status.h>

namespace changeover::transport {

inline constexpr uint64_t kShmMagic = 0x31474e49524f43;  // "CORING1"
inline constexpr uint32_t kShmReadersMax = 256;
inline constexpr uint32_t kShmSlotsMax = 64;
inline constexpr uint64_t kShmPageBytes = 4096;
inline constexpr uint64_t kShmSlotBytesMax = 1ull << 30;

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Written by the publisher before the ring is handed out; `waiting` by it at any time.
struct alignas(64) ShmHeader {
  uint64_t magic;
  uint64_t slots;
  uint64_t slot_bytes;
  std::atomic<uint64_t> publisher_waiting;  // it sleeps until its credit bell rings
};

// One per reader index, written by the publisher. A reader is a member while `generation` is the
// one it was attached with, and of a stream while `stream_id` is its own.
struct alignas(64) ShmMember {
  std::atomic<uint64_t> generation;
  std::atomic<uint64_t> stream_id;
  std::atomic<uint64_t> start;  // the stream's first slot, counted since the road was made
};

// Slot number c lies at c % slots; its sequence is 2c + 1 while it is written and 2c + 2 after.
struct alignas(64) ShmSlot {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> stream_id;
  std::atomic<uint64_t> bytes;
};

// One page per reader; the first two fields by the publisher before it is handed out, the rest by
// the reader alone.
struct ShmControl {
  uint64_t index;
  uint64_t generation;
  alignas(64) std::atomic<uint64_t> consumed;  // slots before this number are read
  std::atomic<uint64_t> waiting;  // 0, or the number of the sleep it is in: ring its bell
};
static_assert(sizeof(ShmControl) <= kShmPageBytes);

inline constexpr uint64_t kShmMembersAt = kShmPageBytes;
inline constexpr uint64_t kShmSlotsAt = kShmMembersAt + kShmReadersMax * sizeof(ShmMember);
inline constexpr uint64_t kShmDataAt = kShmSlotsAt + kShmSlotsMax * sizeof(ShmSlot);
static_assert(kShmDataAt % kShmPageBytes == 0);

constexpr uint64_t shm_ring_bytes(uint64_t slots, uint64_t slot_bytes) {
  return kShmDataAt + slots * slot_bytes;
}

// Typed access to a mapped ring.
class ShmRing {
 public:
  ShmRing(std::byte* base, uint64_t slots, uint64_t slot_bytes)
      : base_(base), slots_(slots), slot_bytes_(slot_bytes) {}
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmMember& member(uint32_t index) const {
    return reinterpret_cast<ShmMember*>(base_ + kShmMembersAt)[index];
  }
  ShmSlot& slot(uint64_t count) const {
    return reinterpret_cast<ShmSlot*>(base_ + kShmSlotsAt)[count % slots_];
  }
  std::byte* data(uint64_t count) const {
    return base_ + kShmDataAt + (count % slots_) * slot_bytes_;
  }
  uint64_t slots() const { return slots_; }
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  std::byte* base_;
  uint64_t slots_;
  uint64_t slot_bytes_;
};

constexpr uint64_t shm_written(uint64_t count) {
  return 2 * count + 2;
}
constexpr uint64_t shm_being_written(uint64_t count) {
  return 2 * count + 1;
}

// Reads before this are done before reads after it: between copying a slot and looking again
// whether it was still the same (rule R3).
inline void order_reads() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");  // The processor keeps reads in order; the compiler must too.
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace changeover::transport
