// Processes that die and stop in mid-update (cases B01, B33, B36; rules R3, T8, V3-V5, M5, S4).
#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/child.h"
#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class CrashOver : public OverEveryWay {
 protected:
  RankOptions rank(const std::string& engine, int index) const {
    RankOptions out = OverEveryWay::rank(engine, index, 2);
    out.subscriber.deadlines = short_deadlines();
    return out;
  }
  std::unique_ptr<Publisher> publisher() const {
    auto options = publisher_options(road());
    options.deadlines = short_deadlines();
    return open_publisher(options);
  }
};

const RankReport& of(const UpdateReport& report, const std::string& rank) {
  for (const auto& each : report.ranks) {
    if (each.rank.to_text() == rank) {
      return each;
    }
  }
  ADD_FAILURE() << "no report of " << rank;
  return report.ranks.front();
}

Status publish(Publisher& publisher, const Model& model, int64_t version, uint32_t ranks) {
  const auto report = publisher.publish(*model.source(version), publish_options(version, ranks));
  return report.ok() ? report->status : report.status();
}

// A rank is killed with half the version in it: its engine ends on the old one or fenced, the other
// engine commits, each rank's own result is told; once it is back the next version goes to all.
TEST_P(CrashOver, CaseB36_ARankKilledInMidStream) {
  const Model model(true);
  auto trainer = publisher();
  std::atomic<bool> survivor_wrote{false};
  auto survivor = rank("a", 0);
  survivor.subscriber.on_progress = [&](uint64_t) {
    survivor_wrote = true;
    survivor_wrote.notify_all();
  };
  Rank a0(model, trainer->endpoint(), survivor);
  Rank b0(model, trainer->endpoint(), rank("b", 0));
  Rank b1(model, trainer->endpoint(), rank("b", 1));
  {
    auto a1 = rank_process(model, trainer->endpoint(), "a", 1, 2, mode());
    ASSERT_TRUE(publish(*trainer, model, 1, 4).ok());
    EXPECT_EQ(a1.wait_until("1 idle open"), "");
    a1.kill();
  }
  auto doomed = rank_process(model, trainer->endpoint(), "a", 1, 2, mode(), 1);
  // It holds no version: its engine is pending, the other one is not.
  ASSERT_TRUE(trainer->wait_for_ranks(4, 10s).ok());
  survivor_wrote = false;
  auto update = std::async(std::launch::async, [&] {
    return trainer->publish(*model.source(2), publish_options(2, 4, 1));
  });
  ASSERT_EQ(doomed.line(), "holding");
  survivor_wrote.wait(
      false);  // Without a byte of version 2 it would have nothing to be fenced for.
  doomed.kill();
  const auto report = update.get();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->status.code(), Code::kAborted);
  EXPECT_EQ(of(*report, "a/1").outcome, RankOutcome::kLost);
  EXPECT_EQ(of(*report, "b/0").outcome, RankOutcome::kCommitted);
  EXPECT_EQ(of(*report, "b/1").outcome, RankOutcome::kCommitted);
  EXPECT_TRUE(b0.serves(2) && b0.holds(2) && b1.serves(2) && b1.holds(2));
  if (mode() != Mode::kInPlace) {
    EXPECT_EQ(of(*report, "a/0").outcome, RankOutcome::kRestored)
        << of(*report, "a/0").error.message();
    EXPECT_TRUE(a0.holds(1));
    EXPECT_FALSE(a0->status().fenced);
  } else {
    EXPECT_EQ(of(*report, "a/0").outcome, RankOutcome::kFenced);
    EXPECT_TRUE(a0->status().fenced);
  }
  auto back = rank_process(model, trainer->endpoint(), "a", 1, 2, mode());
  ASSERT_TRUE(trainer->wait_for_ranks(4, 10s).ok());
  const Status third = publish(*trainer, model, 3, 4);
  ASSERT_TRUE(third.ok()) << third.to_string() << a0.log().all();
  EXPECT_EQ(back.wait_until("3 idle open"), "");
  for (Rank* each : {&a0, &b0, &b1}) {
    EXPECT_TRUE(each->serves(3));
    EXPECT_TRUE(each->holds(3));
  }
}

// Stopped, not dead: nothing closes, so only deadlines find it. The publisher returns within them.
TEST_P(CrashOver, CaseB01_AStoppedRankIsDroppedAndCreditsNothingWhenItWakes) {
  const Model model(true);
  auto trainer = publisher();
  Rank b0(model, trainer->endpoint(), rank("b", 0));
  Rank b1(model, trainer->endpoint(), rank("b", 1));
  auto a0 = rank_process(model, trainer->endpoint(), "a", 0, 2, mode());
  auto a1 = rank_process(model, trainer->endpoint(), "a", 1, 2, mode());
  ASSERT_TRUE(publish(*trainer, model, 1, 4).ok());
  EXPECT_EQ(a1.wait_until("1 idle open"), "");
  a1.stop();
  const auto begin = std::chrono::steady_clock::now();
  const auto report = trainer->publish(*model.source(2), publish_options(2, 4));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(of(*report, "a/1").outcome, RankOutcome::kLost);
  EXPECT_THAT(of(*report, "a/1").error.message(), testing::Not(testing::IsEmpty()));
  EXPECT_EQ(of(*report, "b/0").outcome, RankOutcome::kCommitted);
  EXPECT_TRUE(b0.serves(2) && b1.serves(2));
  a1.go_on();
  ASSERT_TRUE(trainer->wait_for_ranks(4, 10s).ok());
  const Status third = publish(*trainer, model, 3, 4);
  EXPECT_TRUE(third.ok()) << third.to_string();
  EXPECT_EQ(a0.wait_until("3 idle open"), "");
  EXPECT_EQ(a1.wait_until("3 idle open"), "");
}

// The publisher dies in mid-stream: nobody has voted yes, so everybody is on the old version.
TEST_P(CrashOver, V5_PublisherKilledInMidStreamAbortsEveryRank) {
  const Model model(true);
  auto options = publisher_options(road());
  auto doomed = publisher_process(model, options.endpoint, 1, 2);
  const Endpoint endpoint = *Endpoint::parse(doomed.line());
  Rank a0(model, endpoint, rank("a", 0));
  Rank a1(model, endpoint, rank("a", 1));
  ASSERT_EQ(doomed.line(), "ok");
  ASSERT_TRUE(a0.serves(1) && a1.serves(1));
  doomed.kill();
  {
    auto second = publisher_process(model, endpoint, 2, 2, 1);
    ASSERT_EQ(second.line(), endpoint.to_string());
    ASSERT_EQ(second.line(), "holding");
    second.kill();
  }
  options.endpoint = endpoint;
  options.deadlines = short_deadlines();
  auto third = open_publisher(options);
  ASSERT_TRUE(third->wait_for_ranks(2, 10s).ok());
  if (mode() != Mode::kInPlace) {
    EXPECT_TRUE(a0.serves(1) && a0.holds(1) && a1.serves(1) && a1.holds(1));
  }
  const Status status = publish(*third, model, 3, 2);
  EXPECT_TRUE(status.ok()) << status.to_string() << a0.log().all() << a1.log().all();
  EXPECT_TRUE(a0.serves(3) && a0.holds(3) && a1.serves(3) && a1.holds(3));
}

// It dies between a rank's yes and the decision: that rank stays prepared and fenced, in doubt,
// and never guesses; the other one aborts. A new publisher's begin ends it (cases N15, B36).
TEST_P(CrashOver, V5_CaseN15_PreparedRanksStayInDoubtUntilANewPublisherBegins) {
  const Model model(true);
  auto options = publisher_options(road());
  auto first = publisher_process(model, options.endpoint, 1, 2);
  const Endpoint endpoint = *Endpoint::parse(first.line());
  std::promise<void> go_on;
  std::promise<void> reached;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::atomic<bool> armed{false};
  auto slow = rank("a", 1);
  slow.subscriber.on_progress = [&, total = model.payload_bytes()](uint64_t bytes) {
    if (bytes == total && armed.exchange(false)) {
      reached.set_value();
      may_go_on.wait();
    }
  };
  Rank a0(model, endpoint, rank("a", 0));
  Rank a1(model, endpoint, slow);
  ASSERT_EQ(first.line(), "ok");
  ASSERT_TRUE(a0.serves(1) && a1.serves(1));
  first.kill();
  armed = true;
  auto second = publisher_process(model, endpoint, 2, 2);
  ASSERT_EQ(second.line(), endpoint.to_string());
  reached.get_future().wait();
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (a0->status().phase != "prepared" && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  ASSERT_EQ(a0->status().phase, "prepared");
  second.kill();
  while (a0->status().phase != "in_doubt" && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_EQ(a0->status().phase, "in_doubt");
  EXPECT_TRUE(a0->status().fenced);
  EXPECT_EQ(a0->last_report()->outcome, RankOutcome::kInDoubt);
  EXPECT_FALSE(a0->fence().acquire(0s).ok());
  go_on.set_value();
  options.endpoint = endpoint;
  options.deadlines = short_deadlines();
  auto third = open_publisher(options);
  ASSERT_TRUE(third->wait_for_ranks(2, 10s).ok());
  EXPECT_NE(a0->status().version, (VersionStamp{0, 2})) << "it guessed";
  const Status status = publish(*third, model, 2, 2);
  EXPECT_TRUE(status.ok()) << status.to_string() << a0.log().all() << a1.log().all();
  EXPECT_TRUE(a0.serves(2) && a0.holds(2) && a1.serves(2) && a1.holds(2));
}

// Case B33, rule S4: a publisher killed in mid-transfer leaves nothing, and its name is free.
TEST(Crash, S4_CaseB33_NothingStaysAndTheNameIsFreeAgain) {
  const auto entries = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"), {});
  };
  const Model model(true);
  const auto options = publisher_options("shm");
  const auto before = entries();
  RankOptions how;
  how.subscriber.deadlines = short_deadlines();
  Rank rank(model, options.endpoint, how);
  for (int64_t round = 1; round <= 10; ++round) {
    auto doomed = publisher_process(model, options.endpoint, round, 1, 1);
    ASSERT_EQ(doomed.line(), options.endpoint.to_string());
    ASSERT_EQ(doomed.line(), "holding");
    doomed.kill();
  }
  EXPECT_EQ(entries(), before);
  auto publisher = open_publisher(options);
  const Status status = publish(*publisher, model, 11, 1);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(rank.serves(11) && rank.holds(11));
}

INSTANTIATE_TEST_SUITE_P(Ways, CrashOver, every_way(), way_name);

}  // namespace
}  // namespace changeover::e2e
