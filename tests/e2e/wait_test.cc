// What a rank waits for, and what ends its waits: steps inside, a stream that does not come, the
// release, the end of the process (rules R1, R7, T2, T7, V6; case B60).
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class WaitsOver : public OverEveryWay {
 protected:
  WaitsOver() {
    auto options = publisher_options(road());
    options.deadlines = short_deadlines();
    options.deadlines.vote = 3s;
    publisher_ = open_publisher(options);
  }
  auto publishing(int64_t version, uint32_t ranks) {
    return std::async(std::launch::async, [=, this] {
      return publisher_->publish(*model_.source(version), publish_options(version, ranks, 4096));
    });
  }
  void expect_commit(int64_t version, uint32_t ranks) {
    auto report = publishing(version, ranks).get();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    ASSERT_TRUE(report->status.ok()) << report->status.to_string();
  }
  bool writes_live() const { return mode() == Mode::kInPlace || mode() == Mode::kJournal; }
  static void wait_for(const std::function<bool()>& what) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (!what() && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }

  const Model model_{true};
  std::unique_ptr<Publisher> publisher_;
};

// The step is longer than the publisher's patience: the update is given up before a byte of it was
// written, and the old version serves on, also in place.
TEST_P(WaitsOver, T7_CaseB60_AnUpdateThatDiedWhileAStepWasInsideWritesNothing) {
  auto options = rank("a", 0, 1);
  options.subscriber.deadlines.drain = 9s;
  Rank only(model_, publisher_->endpoint(), options);
  expect_commit(1, 1);
  ASSERT_TRUE(only.serves(1));
  auto step = only->fence().acquire(1s);
  ASSERT_TRUE(step.ok());
  const auto report = publishing(2, 1).get();
  if (!writes_live()) {
    step->release();
    return;  // Nobody is waited for before the vote.
  }
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->status.ok());
  step->release();
  EXPECT_TRUE(only.serves(1) && only.holds(1));
  wait_for([&] { return only->status().updates_aborted == 1; });
  EXPECT_TRUE(only.serves(1) && only.holds(1));
  expect_commit(3, 1);
  EXPECT_TRUE(only.serves(3) && only.holds(3));
}

TEST_P(WaitsOver, R7_T7_DeadlinesThatMakeNoSenseAreRefused) {
  EXPECT_LT(Deadlines().drain, Deadlines().stall);
  const LoadPlan plan = model_.plan(0, 1);
  auto store = ParameterStore::allocate(plan);
  ASSERT_TRUE(store.ok());
  SubscriberOptions options;
  options.endpoint = publisher_->endpoint();
  options.engine = "a";
  options.mode = mode();
  options.deadlines.drain = options.deadlines.stall;
  EXPECT_THAT(Subscriber::open(options, plan, **store).status().message(),
              HasSubstr("a rank reads nothing while it waits"));
  for (const std::chrono::nanoseconds nonsense : {0ns, -1ns, std::chrono::nanoseconds::max()}) {
    options.deadlines = {};
    options.deadlines.stall = nonsense;
    EXPECT_THAT(Subscriber::open(options, plan, **store).status().message(),
                HasSubstr("deadlines.stall is"));
    auto serving = publisher_options(road());
    serving.deadlines.vote = nonsense;
    EXPECT_THAT(Publisher::open(serving).status().message(), HasSubstr("deadlines.vote is"));
  }
}

TEST_P(WaitsOver, R7_StopDoesNotWaitForTheStepInside) {
  auto options = rank("a", 0, 1);
  options.subscriber.deadlines.drain = 9s;
  options.subscriber.deadlines.vote = 40s;
  Rank only(model_, publisher_->endpoint(), options);
  expect_commit(1, 1);
  ASSERT_TRUE(only.serves(1));
  auto step = only->fence().acquire(1s);
  ASSERT_TRUE(step.ok());
  auto update = publishing(2, 1);
  if (mode() == Mode::kSwap) {
    EXPECT_TRUE(update.get()->status.ok()) << "nobody is waited for";
    return;
  }
  wait_for([&] { return only->fence().up(); });
  const auto begun = std::chrono::steady_clock::now();
  only->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 4s);
  EXPECT_FALSE(update.get()->status.ok());
}

// A peer refuses the begin, so no stream comes: the other rank is as free as before at once, and
// keeps its connection.
TEST_P(WaitsOver, T2_R1_AStreamThatNeverCameLeavesNothingOpen) {
  auto refusing = rank("a", 1, 2);
  refusing.subscriber.payload_bytes_max = 1;
  auto options = rank("a", 0, 2);
  options.subscriber.deadlines = short_deadlines();
  options.subscriber.deadlines.drain = 500ms;
  Rank a0(model_, publisher_->endpoint(), options);
  Rank a1(model_, publisher_->endpoint(), refusing);
  const auto report = publishing(1, 2).get();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_THAT(report->status.message(), HasSubstr("refused the begin"));
  wait_for([&] { return a0->status().updates_aborted == 1; });
  EXPECT_TRUE(a0->begin_reload(VersionStamp{0, 1}).ok()) << "at once";
  EXPECT_FALSE(a0->fence().acquire(1500ms).ok()) << "longer than its stall limit";
  EXPECT_FALSE(a0.log().has("leaving the publisher")) << a0.log().all();
}

// The publisher breaks the stream off: ranks are rid of it at once, not after their stall limit.
TEST_P(WaitsOver, R3_ABrokenStreamDoesNotOccupyItsRanks) {
  Rank a0(model_, publisher_->endpoint(), rank("a", 0, 2));
  Rank a1(model_, publisher_->endpoint(), rank("a", 1, 2));
  auto how = publish_options(1, 2, 1);
  how.on_progress = [](uint64_t, uint64_t) { throw std::runtime_error("no screen"); };
  const auto begun = std::chrono::steady_clock::now();
  const auto report = publisher_->publish(*model_.source(1), how);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->status.ok());
  Result<std::unique_ptr<Subscriber::Reload>> reload = Status(Code::kRefused, "not tried");
  wait_for([&] {
    reload = a0->begin_reload(VersionStamp{0, 1});
    return reload.ok();
  });
  EXPECT_TRUE(reload.ok()) << reload.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 6s) << "the stall limit is 10 s";
}

TEST_P(WaitsOver, V6_WhoReceivesOneUpdateMayServeItThen) {
  Rank only(model_, publisher_->endpoint(), rank("a", 0, 1), false);
  for (int64_t version = 1; version <= 3; ++version) {
    auto update = publishing(version, 1);
    const auto received = only->receive(std::chrono::nanoseconds::max());
    ASSERT_TRUE(received.ok()) << received.status().to_string();
    EXPECT_EQ(received->outcome, RankOutcome::kCommitted);
    const auto guard = only->fence().acquire(0s);
    EXPECT_TRUE(guard.ok()) << guard.status().to_string();
    EXPECT_TRUE(only.holds(version));
    EXPECT_TRUE(update.get()->status.ok());
  }
}

TEST_P(WaitsOver, T7_StatusIsTrueInTheMiddleOfAStream) {
  Rank* self = nullptr;
  std::vector<RankStatus> seen;
  auto options = rank("a", 0, 1);
  options.subscriber.on_progress = [&](uint64_t) { seen.push_back((*self)->status()); };
  Rank only(model_, publisher_->endpoint(), options, false);
  self = &only;
  ASSERT_TRUE(only->start().ok());
  for (int64_t version = 1; version <= 2; ++version) {
    seen.clear();
    expect_commit(version, 1);
    ASSERT_TRUE(only.serves(version));
    ASSERT_FALSE(seen.empty());
    for (const RankStatus& status : seen) {
      EXPECT_EQ(status.phase, "receiving");
      EXPECT_EQ(status.fenced, version == 1 || writes_live());
      EXPECT_EQ(status.gate_open, version == 2 && !writes_live());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, WaitsOver, every_way(), way_name);

}  // namespace
}  // namespace changeover::e2e
