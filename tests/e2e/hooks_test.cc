// What callers hand in and what it does to an update when it fails: progress and commit hooks,
// ready events, sources (cases B02, B36; rules S5, T12, U1, V1, V3, V4, V6).
#include <future>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class HooksOver : public OverEveryWay {
 protected:
  UpdateReport publish(Publisher& publisher, const Model& model, int64_t version, uint32_t ranks,
                       uint64_t bucket = 1 << 20) {
    auto report =
        publisher.publish(*model.source(version), publish_options(version, ranks, bucket));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *std::move(report) : UpdateReport();
  }
  // Where the engine is after an update that was given up with bytes written.
  void expect_old(Rank& rank, int64_t version) {
    EXPECT_FALSE(rank->status().version == (VersionStamp{0, version + 1}));
    // In place it depends on how far the rank had come when it was told.
    if (mode() == Mode::kInPlace && rank->status().fenced) {
      EXPECT_FALSE(rank->fence().acquire(0s).ok());
    } else {
      EXPECT_TRUE(rank.serves(version));
      EXPECT_TRUE(rank.holds(version));
    }
  }
};

// One of three throws in the middle of the stream, and after its last byte: the publisher gets its
// words, nobody takes the new version, and the next update needs no restart. Three rounds of each.
TEST_P(HooksOver, V1_V3_CaseB02_CaseB36_OneOfThreeThrowsAndNobodyPublishes) {
  const Model model(false);
  auto publisher = open_publisher(publisher_options(road()));
  std::atomic<uint64_t> throw_at{UINT64_MAX};
  auto third = rank("a", 2, 3);
  third.subscriber.on_progress = [&](uint64_t bytes) {
    if (bytes >= throw_at) {
      throw_at = UINT64_MAX;
      throw std::runtime_error("the third one lost its nerve");
    }
  };
  Rank a0(model, publisher->endpoint(), rank("a", 0, 3));
  Rank a1(model, publisher->endpoint(), rank("a", 1, 3));
  Rank a2(model, publisher->endpoint(), third);
  int64_t version = 1;
  ASSERT_TRUE(publish(*publisher, model, version, 3).status.ok());
  for (int round = 0; round < 3; ++round) {
    for (const uint64_t at : {model.payload_bytes() / 2, model.payload_bytes()}) {
      throw_at = at;
      const auto report = publish(*publisher, model, version + 1, 3, model.payload_bytes() / 5);
      EXPECT_EQ(report.status.code(), Code::kAborted);
      EXPECT_THAT(report.status.message(), HasSubstr("a/2"));
      EXPECT_THAT(report.status.message(), HasSubstr("the third one lost its nerve"));
      ASSERT_EQ(report.ranks.size(), 3u);
      for (const RankReport& each : report.ranks) {
        EXPECT_TRUE(each.outcome == RankOutcome::kRestored ||
                    (mode() == Mode::kInPlace && each.outcome == RankOutcome::kFenced));
      }
      for (Rank* each : {&a0, &a1, &a2}) {
        expect_old(*each, version);
      }
      version += 2;
      const auto next = publish(*publisher, model, version, 3);
      ASSERT_TRUE(next.status.ok()) << next.status.to_string();
      for (Rank* each : {&a0, &a1, &a2}) {
        EXPECT_TRUE(each->serves(version) && each->holds(version));
      }
    }
  }
}

TEST_P(HooksOver, V4_EachEngineDecidesForItself) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  std::atomic<bool> throws{false};
  auto failing = rank("b", 0, 1);
  failing.subscriber.on_progress = [&](uint64_t) {
    if (throws) {
      throw std::runtime_error("not here");
    }
  };
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  Rank a1(model, publisher->endpoint(), rank("a", 1, 2));
  Rank b0(model, publisher->endpoint(), failing);
  ASSERT_TRUE(publish(*publisher, model, 1, 3).status.ok());
  throws = true;
  const auto report = publish(*publisher, model, 2, 3);
  EXPECT_THAT(report.status.message(), HasSubstr("b/0"));
  EXPECT_EQ(report.ranks.at(0).outcome, RankOutcome::kCommitted);
  EXPECT_EQ(report.ranks.at(1).outcome, RankOutcome::kCommitted);
  EXPECT_NE(report.ranks.at(2).outcome, RankOutcome::kCommitted);
  EXPECT_TRUE(a0.serves(2) && a0.holds(2) && a1.serves(2) && a1.holds(2));
  expect_old(b0, 1);
}

// The hook says what it did with the caches, once per commit and before steps are let in. One that
// throws is reported too: the version is committed by then, and stays so.
TEST_P(HooksOver, S5_T12_AHookThatFailsIsReportedAndUndoesNothing) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  std::atomic<bool> throws{false};
  std::atomic<int> calls{0};
  Rank* self = nullptr;
  auto options = rank("a", 0, 1);
  options.subscriber.cache_policy = "flush";
  options.subscriber.on_commit = [&]() -> std::string {
    ++calls;
    EXPECT_FALSE((*self)->fence().acquire(0s).ok()) << "before steps are let in";
    if (throws) {
      throw std::runtime_error("the cache is gone");
    }
    return "flushed 7 blocks";
  };
  Rank only(model, publisher->endpoint(), options, false);
  self = &only;
  ASSERT_TRUE(only->start().ok());
  const auto first = publish(*publisher, model, 1, 1);
  ASSERT_TRUE(first.status.ok());
  EXPECT_EQ(first.ranks.at(0).cache_policy, "flush");
  EXPECT_EQ(first.ranks.at(0).cache_result, "flushed 7 blocks");
  ASSERT_TRUE(only.serves(1));
  throws = true;
  const auto second = publish(*publisher, model, 2, 1);
  EXPECT_TRUE(second.status.ok()) << second.status.to_string();
  EXPECT_EQ(second.ranks.at(0).outcome, RankOutcome::kCommitted);
  EXPECT_EQ(second.ranks.at(0).cache_result, "on_commit failed: the cache is gone");
  EXPECT_TRUE(only.serves(2) && only.holds(2));
  EXPECT_EQ(calls, 2);
}

TEST_P(HooksOver, S3_CaseB02_ALogThatThrowsCostsItsLines) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  std::atomic<int> lines{0};
  auto options = rank("a", 0, 1);
  options.subscriber.log = [&](std::string_view) {
    ++lines;
    throw std::runtime_error("the disk is full");
  };
  Rank only(model, publisher->endpoint(), options);
  ASSERT_TRUE(publish(*publisher, model, 2, 1).status.ok());
  EXPECT_FALSE(publish(*publisher, model, 1, 1).status.ok());
  publisher.reset();
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (lines == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_GT(lines, 0);
  EXPECT_TRUE(only.serves(2) && only.holds(2));
}

// No rank steps on a version before the last one has finished: while one still runs its hook, the
// other's gate is shut, though its fence is down.
TEST_P(HooksOver, V6_NoStepBeforeEveryRankHasFinished) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  auto slow = rank("a", 1, 2);
  slow.subscriber.on_commit = [&] {
    may_go_on.wait();
    return std::string("slow");
  };
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  Rank a1(model, publisher->endpoint(), slow);
  auto update = std::async(std::launch::async, [&] { return publish(*publisher, model, 1, 2); });
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (a0->status().updates_committed == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_EQ(a0->status().version, (VersionStamp{0, 1}));
  EXPECT_FALSE(a0->status().fenced);
  EXPECT_FALSE(a0->status().gate_open);
  EXPECT_THAT(a0->fence().acquire(50ms).status().message(), HasSubstr("release"));
  go_on.set_value();
  EXPECT_TRUE(update.get().status.ok());
  EXPECT_TRUE(a0.serves(1) && a1.serves(1));
}

// Whatever of the caller's throws on the publisher's side ends that update and nothing else.
TEST_P(HooksOver, U1_CaseB02_ASourceOrEventThatThrowsEndsThatUpdateOnly) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  Rank a1(model, publisher->endpoint(), rank("a", 1, 2));
  ASSERT_TRUE(publish(*publisher, model, 1, 2).status.ok());
  const auto broken = [](const char* why) { throw std::runtime_error(why); };

  auto how = publish_options(2, 2);
  how.ready = ReadyEvent([&](std::chrono::nanoseconds) {
    broken("the event is broken");
    return Status();
  });
  const auto not_ready = publisher->publish(*model.source(2), how);
  EXPECT_THAT(not_ready.status().message(), HasSubstr("the event is broken"));

  how = publish_options(2, 2, 1);
  how.on_progress = [&](uint64_t, uint64_t) { broken("the screen is broken"); };
  const auto report = publisher->publish(*model.source(2), how);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_THAT(report->status.message(), HasSubstr("the screen is broken"));
  for (Rank* each : {&a0, &a1}) {
    // In place it depends on how far the rank had come when it was told.
    EXPECT_TRUE(mode() == Mode::kInPlace && (*each)->status().fenced ? testing::AssertionSuccess()
                                                                     : each->holds(1));
  }

  const auto next = publish(*publisher, model, 3, 2);
  ASSERT_TRUE(next.status.ok()) << next.status.to_string();
  EXPECT_TRUE(a0.serves(3) && a0.holds(3) && a1.serves(3) && a1.holds(3));
}

// Case N15: a rank that misses its vote, whatever holds it up, is let go with the decision, and is
// not begun again before it has come back.
TEST_P(HooksOver, V5_CaseN15_ARankThatMissedItsVoteIsLetGoAndComesBack) {
  const Model model(true);
  std::promise<void> let_go;
  auto options = publisher_options(road());
  options.deadlines = short_deadlines();
  options.log = [&, told = false](std::string_view line) mutable {
    if (!told && line.find("a/1") != line.npos && line.find("for its vote") != line.npos) {
      told = true;
      let_go.set_value();
    }
  };
  auto publisher = open_publisher(options);
  std::atomic<bool> armed{false};
  auto slow = rank("a", 1, 2);
  slow.subscriber.on_progress = [&](uint64_t) {
    if (armed.exchange(false)) {
      EXPECT_EQ(let_go.get_future().wait_for(10s), std::future_status::ready);
    }
  };
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  Rank a1(model, publisher->endpoint(), slow);
  ASSERT_TRUE(publish(*publisher, model, 1, 2).status.ok());
  armed = true;
  const auto report = publish(*publisher, model, 2, 2);
  EXPECT_THAT(report.status.message(), HasSubstr("a/1"));
  EXPECT_EQ(report.ranks.at(1).outcome, RankOutcome::kLost);
  const auto next = publish(*publisher, model, 3, 2);
  EXPECT_TRUE(next.status.ok()) << next.status.to_string();
  EXPECT_TRUE(a0.serves(3) && a0.holds(3) && a1.serves(3) && a1.holds(3));
}

// Case B02, before it connects: a rank that cannot be is refused where it starts, and the publisher
// names it when its time is over. Then it comes, and the same publisher serves it.
TEST_P(HooksOver, R7_CaseB02_ARankThatNeverConnectsIsNamed) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank a0(model, publisher->endpoint(), rank("a", 0, 2));
  const LoadPlan wrong = model.plan(0, 2);
  auto store = ParameterStore::allocate(wrong);
  ASSERT_TRUE(store.ok());
  SubscriberOptions options;
  options.endpoint = publisher->endpoint();
  options.engine = "a";
  options.rank = 1;
  options.engine_size = 2;
  options.mode = mode();
  EXPECT_THAT(Subscriber::open(options, wrong, **store).status().message(),
              HasSubstr("tensor-parallel rank 0"));
  auto how = publish_options(1, 2);
  how.ranks_timeout = 200ms;
  const auto late = publisher->publish(*model.source(1), how);
  EXPECT_EQ(late.status().code(), Code::kDeadline);
  EXPECT_THAT(late.status().message(), HasSubstr("a/1"));
  Rank a1(model, publisher->endpoint(), rank("a", 1, 2));
  EXPECT_TRUE(publish(*publisher, model, 1, 2).status.ok());
  EXPECT_TRUE(a0.serves(1) && a0.holds(1) && a1.serves(1) && a1.holds(1));
}

INSTANTIATE_TEST_SUITE_P(Ways, HooksOver, every_way(), way_name);

}  // namespace
}  // namespace changeover::e2e
