// Who is there: which ranks are taken, refused, pending or released (rules M5, T15, V2, V5, V6, S3;
// case N10).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/coordinator.h"
#include "protocol/coordinator_testing.h"

namespace changeover::protocol {
namespace {

using ::testing::HasSubstr;
using namespace testing;

TEST_F(CoordinatorTest, V2_AllRanksOfAnEngineHaveOneModeAndOneSize) {
  connect(hello("a", 0));
  Hello other = hello("a", 1);
  other.mode = Mode::kInPlace;
  const auto refused = connect(other);
  EXPECT_THAT(sent<HelloRefused>(refused).at(0).why.message(), HasSubstr("in mode in_place"));
  EXPECT_FALSE(sent<HelloRefused>(refused)[0].retry);
  const auto larger = connect(hello("a", 1, 3));
  EXPECT_THAT(sent<HelloRefused>(larger).at(0).why.message(), HasSubstr("3 ranks"));
  EXPECT_EQ(sent<Welcome>(connect(hello("a", 1))).size(), 1u);
}

TEST_F(CoordinatorTest, V5_NoAnswerForAnotherPublishersUpdate) {
  Hello doubtful = hello("a", 0, 1);
  doubtful.prepared = UpdateId{incarnation(99), 7};
  const auto a0 = connect(doubtful);
  EXPECT_EQ(sent<Welcome>(a0).size(), 1u);
  EXPECT_TRUE(sent<Decision>(a0).empty()) << "no record is no abort";
  EXPECT_TRUE(sent<Release>(a0).empty());
}

TEST_F(CoordinatorTest, V6_AWholeEngineWithAShutGateIsReleasedWhenItConnects) {
  Hello shut = hello("a", 0);
  shut.gate_open = false;
  const auto a0 = connect(shut);
  EXPECT_TRUE(sent<Release>(a0).empty());
  const auto a1 = connect(hello("a", 1));
  EXPECT_EQ(sent<Release>(a0).size(), 1u);
  EXPECT_TRUE(sent<Release>(a1).empty()) << "its gate is open";
  Hello other = hello("b", 0);
  other.gate_open = false;
  const auto b0 = connect(other);
  Hello older = hello("b", 1);
  older.version = VersionStamp{0, 0};
  older.gate_open = false;
  const auto b1 = connect(older);
  EXPECT_TRUE(sent<Release>(b0).empty() && sent<Release>(b1).empty());
}

// A reload changes what a rank holds without an update: its second hello says so, and the engine is
// released when all its ranks hold that.
TEST_F(CoordinatorTest, V6_M5_ASecondHelloAfterAReloadIsWhatCounts) {
  Hello first = hello("a", 0);
  const auto a0 = connect(first);
  Hello second = hello("a", 1);
  const auto a1 = connect(second);
  EXPECT_FALSE(coordinator_.peers().at(0).pending);
  first.version = VersionStamp{0, 7};
  first.digest.reset();
  first.gate_open = false;
  handle(Coordinator::Received{a0, first});
  EXPECT_TRUE(coordinator_.peers().at(0).pending);
  EXPECT_EQ(coordinator_.peers().at(0).version, (VersionStamp{0, 7}));
  EXPECT_TRUE(sent<Release>(a0).empty());
  second.version = VersionStamp{0, 7};
  second.digest.reset();
  second.gate_open = false;
  second.fenced = true;
  handle(Coordinator::Received{a1, second});
  EXPECT_TRUE(sent<Release>(a0).empty());
  second.fenced = false;
  handle(Coordinator::Received{a1, second});
  ASSERT_EQ(sent<Release>(a0).size(), 1u);
  EXPECT_EQ(sent<Release>(a0)[0].version, (VersionStamp{0, 7}));
  EXPECT_EQ(sent<Release>(a1).size(), 1u);
  EXPECT_EQ(sent<Welcome>(a0).size(), 1u) << "it was welcomed before";

  Hello another = first;
  another.rank.rank = 1;
  handle(Coordinator::Received{a0, another});
  EXPECT_EQ(actions<Coordinator::CloseConnection>().at(0).connection, a0);
}

TEST_F(CoordinatorTest, M5_AnEngineThatIsNotCompleteIsPendingAndLeftOut) {
  const auto a0 = connect(hello("a", 0));
  const auto b0 = connect(hello("b", 0, 1));
  EXPECT_EQ(coordinator_.complete_ranks(), 1u);
  EXPECT_EQ(coordinator_.missing_ranks(), "a/1");
  EXPECT_TRUE(coordinator_.peers()[0].pending);
  EXPECT_FALSE(coordinator_.peers()[1].pending);
  start();
  EXPECT_TRUE(sent<Begin>(a0).empty());
  EXPECT_EQ(sent<Begin>(b0).size(), 1u);
  const auto a1 = connect(hello("a", 1));
  EXPECT_TRUE(sent<Begin>(a1).empty()) << "it joined in the middle: the next update fills it";
  reply(b0);
  stream_ended();
  vote(b0);
  finished(b0);
  ASSERT_TRUE(is_done());
  EXPECT_TRUE(report().status.ok()) << "other engines do not stop for it";
  ASSERT_EQ(report().ranks.size(), 2u);
  EXPECT_EQ(report().ranks[0].rank.to_text(), "a/0");
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kLeftOut);
  EXPECT_THAT(report().ranks[0].error.message(), HasSubstr("missing: a/1"));
  EXPECT_EQ(report().ranks[0].version, (VersionStamp{0, 1}));
}

// Who was asked for may be gone when the update begins, or begins again with a digest (rule U2).
TEST_F(CoordinatorTest, M5_T14_AnUpdateBeginsWithTheRanksThatWereAskedForOrNotAtAll) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  const auto b0 = connect(hello("b", 0));
  const auto b1 = connect(hello("b", 1));
  UpdateRequest request;
  request.version = kV2;
  request.ranks_min = 4;
  handle(Coordinator::StartUpdate{request});
  for (const auto id : {a0, a1, b0}) {
    reply(id);
  }
  reply(b1, BeginKind::kNeedDigest);
  handle(Coordinator::Closed{b1, {Code::kUnavailable, "restarts"}});
  actions_.clear();
  handle(Coordinator::DigestReady{digest(2)});
  EXPECT_TRUE(actions<Coordinator::Send>().empty());
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().status.code(), Code::kUnavailable);
  EXPECT_THAT(report().status.message(), HasSubstr("2 rank(s) of whole engines are here, 4"));
  EXPECT_THAT(report().status.message(), HasSubstr("missing: b/1"));
  ASSERT_EQ(report().ranks.size(), 1u);
  EXPECT_EQ(report().ranks[0].rank.to_text(), "b/0");
}

// An engine whose layout moved has plans of a new generation. A rank with an older one is refused
// by name, and one that was here before the others moved keeps the engine out of the update.
TEST_F(CoordinatorTest, T15_AnOlderPlanIsRefusedAndNoUpdateRunsOnTwo) {
  const auto plan = [&](int32_t rank, uint64_t generation) {
    Hello with = hello("a", rank, 3);
    with.plan_generation = generation;
    return with;
  };
  const auto a0 = connect(plan(0, 4));
  const auto a1 = connect(plan(1, 5));
  const auto late = connect(plan(2, 4));
  EXPECT_TRUE(sent<Welcome>(late).empty());
  EXPECT_THAT(sent<HelloRefused>(late).at(0).why.message(),
              HasSubstr("\"a\"/2 has the load plan of generation 4, rank 1 of its engine that of "
                        "generation 5"));
  const auto a2 = connect(plan(2, 5));
  EXPECT_EQ(coordinator_.complete_ranks(), 0u) << "a0 still has the old layout";
  EXPECT_EQ(coordinator_.missing_ranks(), "a/0 with the newer load plan");
  start();
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().status.code(), Code::kUnavailable);
  EXPECT_TRUE(sent<Begin>(a1).empty() && sent<Begin>(a2).empty());
  handle(Coordinator::Closed{a0, {Code::kUnavailable, "restarted"}});
  Hello moved = plan(0, 5);
  moved.incarnation = incarnation(99);
  const auto back = connect(moved);
  EXPECT_EQ(coordinator_.complete_ranks(), 3u);
  start();
  EXPECT_EQ(sent<Begin>(back).size(), 1u);
}

TEST_F(CoordinatorTest, ASecondClaimOfALiveRankIsRefusedAndTheFirstStands) {
  const auto first = connect(hello("a", 0, 1));
  Hello other = hello("a", 0, 1);
  other.incarnation = incarnation(77);
  const auto second = connect(other);
  EXPECT_TRUE(sent<HelloRefused>(second).at(0).retry);
  EXPECT_EQ(coordinator_.peers().size(), 1u);
  EXPECT_EQ(coordinator_.peers()[0].incarnation, ranks_[first].incarnation);
  handle(Coordinator::Closed{first, {}});
  EXPECT_EQ(sent<Welcome>(connect(other)).size(), 1u) << "a restarted process takes its place";
  const auto anew = connect(other);
  EXPECT_EQ(sent<Welcome>(anew).size(), 1u) << "the same process on a new connection";
  EXPECT_EQ(coordinator_.peers().size(), 1u);
}

TEST_F(CoordinatorTest, CaseN10_AForeignJobIsRefusedByName) {
  Hello foreign = hello("a", 0);
  foreign.job = "other";
  const auto id = connect(foreign);
  EXPECT_THAT(sent<HelloRefused>(id).at(0).why.message(), HasSubstr("\"other\""));
  EXPECT_THAT(sent<HelloRefused>(id)[0].why.message(), HasSubstr("\"job\""));
  EXPECT_TRUE(coordinator_.peers().empty());
}

// Case N10: process ids come round again. Who a rank is, is said by its incarnation: a new process
// with a dead one's id is another rank, and words of the dead one are not taken for its own.
TEST_F(CoordinatorTest, CaseN10_AReusedProcessIdIsNotTheProcessItWas) {
  Hello dead = hello("a", 0, 1);
  dead.pid = 4711;
  dead.host = "one";
  const auto first = connect(dead);
  Hello reused = dead;
  reused.incarnation = incarnation(77);
  reused.version.reset();
  const auto early = connect(reused);
  EXPECT_THAT(sent<HelloRefused>(early).at(0).why.message(), HasSubstr("4711"));
  EXPECT_EQ(coordinator_.peers().at(0).incarnation, dead.incarnation) << "the first stands";
  handle(Coordinator::Closed{first, {Code::kUnavailable, "killed"}});

  const auto second = connect(reused);
  EXPECT_EQ(coordinator_.peers().at(0).incarnation, reused.incarnation);
  EXPECT_FALSE(coordinator_.peers()[0].version.has_value()) << "nothing is kept of the dead one";
  start();
  reply(second);
  stream_ended();
  ranks_[second].incarnation = dead.incarnation;
  vote(second);
  EXPECT_TRUE(sent<Decision>(second).empty()) << "a vote of the dead one";
  ranks_[second].incarnation = reused.incarnation;
  vote(second);
  EXPECT_TRUE(sent<Decision>(second).at(0).commit);
  ranks_[second].incarnation = dead.incarnation;
  finished(second);
  EXPECT_FALSE(is_done());
  ranks_[second].incarnation = reused.incarnation;
  finished(second);
  EXPECT_TRUE(report().status.ok());
}

TEST_F(CoordinatorTest, S3_WhatMakesNoSenseClosesThatConnectionOnly) {
  const auto good = connect(hello("a", 0, 1));
  for (const auto& [rank, size] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, 1 << 20}}) {
    EXPECT_EQ(sent<HelloRefused>(connect(hello("b", rank, size))).size(), 1u);
  }
  Hello unnamed = hello("a", 0);
  unnamed.rank.engine.clear();
  EXPECT_EQ(sent<HelloRefused>(connect(unnamed)).size(), 1u);
  actions_.clear();
  handle(Coordinator::Received{500, Vote{}});
  handle(Coordinator::Received{good, Welcome{}});
  EXPECT_EQ(actions<Coordinator::CloseConnection>().size(), 2u);
  EXPECT_TRUE(coordinator_.peers().empty());
}

}  // namespace
}  // namespace changeover::protocol
