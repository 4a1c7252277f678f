#include "transport/faulty/faulty_road.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "transport/contract_kit.h"
#include "transport/file/file_road.h"

namespace changeover::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const os::SystemClock kClock;
const std::vector<uint64_t> kParts = {32, 100, 70'000, 32, 0, 500};

std::string temporary_path() {
  return testing::TempDir() + "faulty-" + std::to_string(::getpid()) + "-" +
         testing::UnitTest::GetInstance()->current_test_info()->name();
}

// What a stream recorded through this fault looks like.
std::string record(const FaultPlan& plan, bool lend, Status* status = nullptr) {
  auto file = std::make_unique<FileSendRoad>(temporary_path());
  FileSendRoad& raw = *file;
  FaultySendRoad road(std::move(file), plan, kClock);
  EXPECT_TRUE(road.open_stream(std::vector<uint32_t>{0}, 1).ok());
  const Status sent = send_parts(road, 1, kParts, milliseconds(20), lend);
  if (status != nullptr) {
    *status = sent;
  }
  (void)raw.finish().ok();
  const Result<std::string> text = os::read_file(temporary_path(), 1 << 20);
  ::unlink(temporary_path().c_str());
  return text.ok() ? *text : "no file";
}

TEST(FaultySend, FlipsExactlyOneBit) {
  const std::string whole = record({}, false);
  ASSERT_EQ(whole.size(), total_bytes(kParts));
  for (const uint64_t at : {0ull, 31ull, 132ull, 5000ull, 70'663ull}) {
    for (const bool lend : {false, true}) {
      std::string expected = whole;
      expected[at] = static_cast<char>(expected[at] ^ 8);
      EXPECT_EQ(record({FaultKind::kFlipBit, at, 0, 3}, lend), expected) << at;
    }
  }
}

TEST(FaultySend, TruncatesAtTheByteAndSaysYes) {
  const std::string whole = record({}, false);
  for (const uint64_t at : {0ull, 40ull, 65'000ull, 70'500ull}) {
    for (const bool lend : {false, true}) {
      Status status;
      EXPECT_EQ(record({FaultKind::kTruncate, at}, lend, &status), whole.substr(0, at)) << at;
      EXPECT_TRUE(status.ok());
    }
  }
}

TEST(FaultySend, StallEndsAtTheDeadline) {
  for (const bool lend : {false, true}) {
    Status status;
    (void)record({FaultKind::kStall, 2000}, lend, &status);
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_THAT(status.message(), HasSubstr("stall at byte 2000"));
  }
}

TEST(FaultySend, LosesThePeer) {
  for (const bool lend : {false, true}) {
    Status status;
    EXPECT_EQ(record({FaultKind::kLosePeer, 40, 0}, lend, &status), "no file");
    EXPECT_FALSE(status.ok());
  }
}

class FaultyReceive : public testing::Test {
 protected:
  void SetUp() override {
    FileSendRoad road(temporary_path());
    ASSERT_TRUE(road.open_stream(std::vector<uint32_t>{0}, 1).ok());
    ASSERT_TRUE(send_parts(road, 1, kParts, seconds(5), false).ok());
    ASSERT_TRUE(road.finish().ok());
  }
  void TearDown() override { ::unlink(temporary_path().c_str()); }
  std::unique_ptr<FaultyReceiveRoad> open(const FaultPlan& plan) {
    auto road =
        FaultyReceiveRoad::create(FileReceiveRoad::create(temporary_path()).take(), plan, kClock)
            .take();
    EXPECT_TRUE(road->open_stream(1).ok());
    return road;
  }
};

TEST_F(FaultyReceive, FlipsExactlyThatByteOnce) {
  for (const uint64_t at : {0ull, 31ull, 132ull, 5000ull, 70'663ull}) {
    const auto road = open({FaultKind::kFlipBit, at, 0, 7});
    const Status status = receive_parts(*road, 1, kParts, seconds(5), false);
    EXPECT_EQ(status.message(), "byte " + std::to_string(at) + " is wrong");
    ASSERT_TRUE(road->open_stream(2).ok());  // It struck: the second stream is whole.
    EXPECT_TRUE(receive_parts(*road, 1, kParts, seconds(5), true).ok());
  }
}

TEST_F(FaultyReceive, LossTruncationAndStallEndTheStreamThere) {
  for (const FaultKind kind : {FaultKind::kLosePeer, FaultKind::kTruncate, FaultKind::kStall}) {
    const auto road = open({kind, 132});
    EXPECT_TRUE(receive_parts(*road, 1, {32, 100}, seconds(5), false).ok());
    const Status status = road->receive(Part::kPayload, 10, {}, in(milliseconds(20))).status();
    EXPECT_EQ(status.code(), kind == FaultKind::kStall ? Code::kDeadline : Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("at byte 132"));
  }
}

TEST_F(FaultyReceive, WakeEndsAStall) {
  const auto road = open({FaultKind::kStall, 0});
  std::thread waker([&] { road->wake(); });
  EXPECT_EQ(road->receive(Part::kHeader, 32, {}, in(seconds(20))).status().code(), Code::kTryLater);
  waker.join();
}

TEST(FaultPlans, SameSeedSamePlanAndAllKindsAppear) {
  std::set<FaultKind> kinds;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FaultPlan plan = fault_from_seed(seed, 1000, 3);
    EXPECT_EQ(plan.to_string(), fault_from_seed(seed, 1000, 3).to_string());
    EXPECT_LT(plan.at_byte, 1000u);
    EXPECT_LT(plan.peer, 3u);
    kinds.insert(plan.kind);
  }
  EXPECT_EQ(kinds.size(), 4u);
  EXPECT_EQ(kinds.count(FaultKind::kNone), 0u);
  // Written down once: a seed in a bug report must mean the same next year.
  EXPECT_EQ(fault_from_seed(1, 1000, 3).to_string(), "stall at byte 519");
}

}  // namespace
}  // namespace changeover::transport
