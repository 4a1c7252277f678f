#include "runtime/waiting_fence.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace changeover::runtime {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class WaitingFenceTest : public testing::Test {
 protected:
  void open(int64_t version) {
    fence_.state().publish(VersionStamp{0, version});
    fence_.state().lower();
    fence_.state().open_gate();
    fence_.wake_readers();
  }
  os::SystemClock clock_;
  WaitingFence fence_{20ms, 20ms, clock_};
};

TEST_F(WaitingFenceTest, T7_StartsFencedAndSaysWhy) {
  const auto guard = fence_.acquire(0ns);
  EXPECT_EQ(guard.status().code(), Code::kRefused);
  EXPECT_THAT(guard.status().message(), HasSubstr("version"));
}

TEST_F(WaitingFenceTest, AReaderThatWaitsIsWokenByTheOpening) {
  Result<Fence::Guard> got = Status(Code::kDeadline, "not yet");
  std::thread reader([&] { got = fence_.acquire(10s); });
  open(4);
  reader.join();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->version(), (VersionStamp{0, 4}));
}

// Who did not get in looks at the clock, so that a test knows it.
class SeenClock final : public os::Clock {
 public:
  Instant now() const override {
    looks.fetch_add(1);
    return clock_.now();
  }
  mutable std::atomic<int> looks{0};

 private:
  os::SystemClock clock_;
};

TEST_F(WaitingFenceTest, R7_TheLongestTimeoutWaits) {
  SeenClock clock;
  WaitingFence fence(20ms, 20ms, clock);
  Result<Fence::Guard> got = Status(Code::kDeadline, "not yet");
  std::thread reader([&] { got = fence.acquire(std::chrono::nanoseconds::max()); });
  while (clock.looks == 0) {
    std::this_thread::yield();
  }
  fence.state().publish(VersionStamp{0, 4});
  fence.state().lower();
  fence.state().open_gate();
  fence.wake_readers();
  reader.join();
  EXPECT_TRUE(got.ok()) << got.status().to_string();
}

TEST_F(WaitingFenceTest, T7_RaisingWaitsForTheStepInside) {
  WaitingFence patient(10s, 10s, clock_);
  patient.state().publish(VersionStamp{0, 1});
  patient.state().lower();
  patient.state().open_gate();
  auto step = patient.acquire(0ns);
  ASSERT_TRUE(step.ok());
  Status raised(Code::kDeadline, "not yet");
  std::thread writer([&] {
    raised = patient.raise_and_drain(update::FenceReason::kReceiving, {0, 2});
  });
  while (!patient.up()) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(patient.acquire(0ns).ok()) << "nobody enters behind a raised fence";
  step->release();
  writer.join();
  EXPECT_TRUE(raised.ok()) << raised.to_string();
}

TEST_F(WaitingFenceTest, T7_CaseB60_AnEndlessStepIsADeadlineAndTheFenceIsAsItWas) {
  open(1);
  auto endless = fence_.acquire(0ns);
  ASSERT_TRUE(endless.ok());
  const Status status = fence_.raise_and_drain(update::FenceReason::kReceiving, {0, 2});
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_THAT(status.message(), HasSubstr("1 step(s) still inside"));
  EXPECT_TRUE(fence_.acquire(0ns).ok());
}

class SwapFenceTest : public WaitingFenceTest {
 protected:
  SwapFenceTest() { fence_.state().pin_by_version(); }
  void flip(int64_t version) {
    const uint32_t next = fence_.half() ^ 1;
    fence_.state().raise_for_unnamed(update::FenceReason::kPrepared, VersionStamp{0, version});
    fence_.state().shut_gate();
    fence_.state().publish(VersionStamp{0, version}, next);
    fence_.state().lower();
    fence_.state().open_gate();
    fence_.wake_readers();
  }
};

TEST_F(SwapFenceTest, V6_ReclaimWaitsForTheLastGuardOfThatHalf) {
  WaitingFence patient(20ms, 10s, clock_);
  patient.state().pin_by_version();
  patient.state().publish(VersionStamp{0, 1}, 1);
  patient.state().lower();
  patient.state().open_gate();
  auto old = patient.acquire(0ns);
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(old->half(), 1u);
  patient.state().publish(VersionStamp{0, 2}, 0);
  auto live = patient.acquire(0ns);
  Status reclaimed(Code::kDeadline, "not yet");
  std::thread writer([&] { reclaimed = patient.reclaim(1); });
  old->release();
  writer.join();
  EXPECT_TRUE(reclaimed.ok()) << reclaimed.to_string();
  EXPECT_FALSE(patient.acquire_version({0, 1}, 0ns).ok());
}

TEST_F(SwapFenceTest, V6_R7_AGuardThatStaysIsNamedAndItsVersionStays) {
  open(1);
  auto old = fence_.acquire(0ns);
  flip(2);
  const Status status = fence_.reclaim(0);
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_THAT(status.message(), HasSubstr("1 guard(s) of the old half"));
  auto again = fence_.acquire_version({0, 1}, 0ns);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->half(), 0u);
  EXPECT_EQ(fence_.acquire(0ns)->version(), (VersionStamp{0, 2}));
}

TEST_F(SwapFenceTest, V6_AReaderWaitsForTheVersionItsStepCarries) {
  open(1);
  Result<Fence::Guard> got = Status(Code::kDeadline, "not yet");
  std::thread reader([&] { got = fence_.acquire_version({0, 2}, 10s); });
  flip(2);
  reader.join();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->half(), 1u);
}

// The update, or the process, is over while a step is waited for: the writer learns of it at once,
// and also where the step has ended just then.
TEST_F(WaitingFenceTest, T7_R7_AnUpdateThatIsOverWaitsForNoStep) {
  std::atomic<bool> over{false};
  WaitingFence patient(1h, 1h, clock_,
                       [&] { return over ? Status(Code::kAborted, "a peer died") : Status(); });
  patient.state().publish(VersionStamp{0, 1});
  patient.state().lower();
  patient.state().open_gate();
  auto step = patient.acquire(0ns);
  ASSERT_TRUE(step.ok());
  Status raised;
  std::thread writer([&] {
    raised = patient.raise_and_drain(update::FenceReason::kReceiving, {0, 2});
  });
  while (!patient.up()) {
    std::this_thread::yield();
  }
  over = true;
  patient.wake_writer();
  writer.join();
  EXPECT_EQ(raised.message(), "a peer died");
  EXPECT_TRUE(patient.acquire(0ns).ok()) << "the fence is as it was";
  step->release();
  EXPECT_EQ(patient.raise_and_drain(update::FenceReason::kReceiving, {0, 2}).message(),
            "a peer died");
  EXPECT_TRUE(patient.acquire(0ns).ok());
}

TEST_F(WaitingFenceTest, AGuardMovesAndReleasesOnce) {
  open(1);
  auto first = fence_.acquire(0ns);
  Fence::Guard moved = std::move(*first);
  first->release();
  EXPECT_EQ(fence_.state().readers(), 1u);
  Fence::Guard other;
  other = std::move(moved);
  EXPECT_EQ(fence_.state().readers(), 1u);
  other.release();
  other.release();
  EXPECT_EQ(fence_.state().readers(), 0u);
}

}  // namespace
}  // namespace changeover::runtime
