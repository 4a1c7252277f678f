// What only the ring can get wrong.
#include "transport/shm/shm_road.h"

#include <array>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/socket.h"
#include "transport/contract_kit.h"

namespace changeover::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const std::vector<uint32_t> kOne = {0};
const os::SystemClock kClock;

// A reader whose memory the test can look into: it takes the descriptors first and hands them on.
struct OpenReader {
  os::Mapping ring;
  os::Mapping control;
  os::Fd ring_fd;
  os::Fd publisher_side;  // stands for the publisher's end towards `road`
  std::unique_ptr<ShmReceiveRoad> road;

  const ShmControl& credits() const { return *reinterpret_cast<ShmControl*>(control.data()); }
  ShmControl& writable_credits() { return *reinterpret_cast<ShmControl*>(control.data()); }
};

OpenReader attach_open(ShmSendRoad& sender, uint32_t peer, os::Fd& keep) {
  OpenReader reader;
  auto first = os::socket_pair().take();
  EXPECT_TRUE(sender.attach(peer, "reader", std::move(first.first), in(seconds(5))).ok());
  std::vector<os::Fd> fds =
      os::receive_descriptors(first.second, 4, kClock, in(seconds(5)), "publisher").take();
  keep = std::move(first.second);
  reader.ring = os::Mapping::map(fds[0], *os::size_of(fds[0]), os::Access::kReadOnly).take();
  reader.control = os::Mapping::map(fds[1], kShmPageBytes, os::Access::kReadWrite).take();
  auto second = os::socket_pair().take();
  const std::array<int, 4> numbers = {fds[0].get(), fds[1].get(), fds[2].get(), fds[3].get()};
  EXPECT_TRUE(os::send_descriptors(second.first, numbers, kClock, in(seconds(5)), "reader").ok());
  reader.publisher_side = std::move(second.first);
  reader.road =
      ShmReceiveRoad::create(std::move(second.second), "publisher", kClock, in(seconds(5))).take();
  reader.ring_fd = std::move(fds[0]);
  return reader;
}

std::unique_ptr<ShmSendRoad> small_ring(std::chrono::nanoseconds stall_limit) {
  return ShmSendRoad::create({2, kShmPageBytes, stall_limit}, kClock).take();
}

TEST(ShmRoad, ReadersCannotWriteTheRing) {
  const auto sender = small_ring(seconds(5));
  os::Fd keep;
  const OpenReader reader = attach_open(*sender, 0, keep);
  EXPECT_FALSE(os::Mapping::map(reader.ring_fd, kShmPageBytes, os::Access::kReadWrite).ok());
  // Nor through a descriptor opened anew: the memory itself is sealed.
  const os::Fd again(::open(("/proc/self/fd/" + std::to_string(reader.ring_fd.get())).c_str(), 2));
  if (again.valid()) {
    EXPECT_FALSE(os::Mapping::map(again, kShmPageBytes, os::Access::kReadWrite).ok());
    EXPECT_LT(::write(again.get(), "x", 1), 0);
  }
  EXPECT_TRUE(os::size_is_sealed(reader.ring_fd));
}

// The dropped reader holds a run while the ring goes round; it must credit nothing afterwards.
TEST(ShmRoad, R3_DroppedReaderThatWakesCreditsNothing) {
  for (const bool overwritten : {true, false}) {
    const auto sender = small_ring(milliseconds(50));
    os::Fd keep_zero, keep_one;
    OpenReader slow = attach_open(*sender, 0, keep_zero);
    OpenReader fast = attach_open(*sender, 1, keep_one);
    ASSERT_TRUE(sender->open_stream(std::vector<uint32_t>{0, 1}, 1).ok());
    ASSERT_TRUE(slow.road->open_stream(1).ok());
    ASSERT_TRUE(fast.road->open_stream(1).ok());
    ASSERT_TRUE(send_parts(*sender, 1, {0, 0, 2 * kShmPageBytes}, seconds(5), false).ok());
    ASSERT_TRUE(receive_parts(*fast.road, 1, {0, 0, 2 * kShmPageBytes}, seconds(5), false).ok());
    const Result<transport::Run> run =
        slow.road->receive(Part::kPayload, 2 * kShmPageBytes, {}, in(seconds(5)));
    ASSERT_TRUE(run.ok());
    if (overwritten) {  // the publisher waits for `slow`, drops it, and writes the slot again
      ASSERT_TRUE(sender->send(Part::kPayload, pattern_bytes(9, 0, 100), in(seconds(5))).ok());
    } else {
      sender->drop(0, Status(Code::kUnavailable, "told so"));
    }
    ASSERT_EQ(sender->take_failures().size(), 1u);
    const uint64_t before = slow.credits().consumed.load();
    const Status released = slow.road->release(*run);
    EXPECT_EQ(released.code(), Code::kUnavailable);
    EXPECT_THAT(released.message(), HasSubstr(overwritten ? "written again" : "dropped this rank"));
    EXPECT_EQ(slow.credits().consumed.load(), before);
    EXPECT_EQ(slow.road->receive(Part::kPayload, 1, {}, in(seconds(5))).status().code(),
              Code::kUnavailable);
  }
}

TEST(ShmRoad, CreditsFromTheFutureDropTheReader) {
  const auto sender = small_ring(seconds(60));
  os::Fd keep;
  OpenReader reader = attach_open(*sender, 0, keep);
  ASSERT_TRUE(sender->open_stream(kOne, 1).ok());
  reader.writable_credits().consumed.store(1'000'000);
  const Status status =
      sender->send(Part::kPayload, pattern_bytes(1, 0, 3 * kShmPageBytes), in(seconds(5)));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  const std::vector<PeerFailure> failures = sender->take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].status.code(), Code::kCorrupt);
  EXPECT_THAT(failures[0].status.message(), HasSubstr("credited slot 1000000 of"));
}

TEST(ShmRoad, WhatIsNoRingIsRefused) {
  struct Offer {
    size_t ring_bytes, control_bytes, descriptors;
  };
  for (const Offer& offer :
       {Offer{kShmDataAt + 2 * kShmPageBytes, kShmPageBytes, 4}, Offer{100, kShmPageBytes, 4},
        Offer{kShmDataAt, 100, 4}, Offer{kShmDataAt, kShmPageBytes, 3}}) {
    auto sockets = os::socket_pair().take();
    const os::Fd ring = os::create_memory("ring", offer.ring_bytes).take();
    const os::Fd control = os::create_memory("control", offer.control_bytes).take();
    const os::Doorbell bell = os::Doorbell::create().take();
    const std::array<int, 4> fds = {ring.get(), control.get(), bell.fd().get(), bell.fd().get()};
    ASSERT_TRUE(os::send_descriptors(sockets.first, std::span(fds).first(offer.descriptors), kClock,
                                     in(seconds(5)), "reader")
                    .ok());
    const auto road =
        ShmReceiveRoad::create(std::move(sockets.second), "publisher", kClock, in(seconds(5)));
    EXPECT_EQ(road.status().code(), Code::kCorrupt);
  }
}

TEST(ShmRoad, OptionsOutOfRangeAreRefusedWithTheNumbers) {
  for (const ShmSendOptions& options :
       {ShmSendOptions{.slots = 1}, ShmSendOptions{.slots = 65}, ShmSendOptions{.slot_bytes = 0},
        ShmSendOptions{.slot_bytes = 4097}, ShmSendOptions{.slot_bytes = 2ull << 30}}) {
    EXPECT_EQ(ShmSendRoad::create(options, kClock).status().code(), Code::kInvalidArgument);
  }
  const auto sender = small_ring(seconds(5));
  auto sockets = os::socket_pair().take();
  EXPECT_EQ(
      sender->attach(kShmReadersMax, "reader", std::move(sockets.first), in(seconds(5))).code(),
      Code::kInvalidArgument);
}

}  // namespace
}  // namespace changeover::transport
