// The publisher's side against scripted ranks (rules T1, U2, U5, V1-V5, R7, S3; cases B36, N15).
#include "protocol/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/coordinator_testing.h"

namespace changeover::protocol {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using namespace testing;

TEST_F(CoordinatorTest, AWholeUpdateCommitsAndReleases) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  reply(a0);
  EXPECT_TRUE(actions<Coordinator::OpenStream>().empty()) << "a1 does not listen";
  reply(a1);
  const auto open = actions<Coordinator::OpenStream>();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].ranks, (std::vector<ConnectionId>{a0, a1}));
  stream_ended();
  EXPECT_EQ(sent<SourceDigest>(a1).at(0).digest, digest(2));
  vote(a0);
  vote(a1);
  EXPECT_TRUE(sent<Decision>(a0).at(0).commit);
  finished(a0);
  EXPECT_TRUE(sent<Release>(a0).empty());
  EXPECT_FALSE(is_done());
  finished(a1);
  EXPECT_EQ(sent<Release>(a0).at(0).version, kV2);
  EXPECT_EQ(sent<Release>(a1).size(), 1u);
  ASSERT_TRUE(is_done());
  EXPECT_TRUE(report().status.ok());
  EXPECT_EQ(report().digest, digest(2));
  EXPECT_EQ(report().ranks.size(), 2u);
}

TEST_F(CoordinatorTest, V1_OneYesIsNeverEnough) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  const auto b0 = connect(hello("b", 0, 1));
  start();
  for (auto id : {a0, a1, b0}) {
    reply(id);
  }
  stream_ended();
  vote(a0);
  vote(b0);
  EXPECT_TRUE(sent<Decision>(a0).empty());
  EXPECT_TRUE(sent<Decision>(b0).at(0).commit) << "V4: each engine decides for itself";
  vote(a1, false, {Code::kCorrupt, "digest differs"});
  EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
  EXPECT_THAT(sent<Decision>(a0)[0].reason.message(), HasSubstr("a/1 voted no: digest differs"));
  finished(a0, false);
  finished(a1, false);
  finished(b0);
  EXPECT_FALSE(report().status.ok());
  EXPECT_EQ(sent<Release>(b0).size(), 1u);
  EXPECT_TRUE(sent<Release>(a0).empty());
}

// Case B36: one of three fails in the middle; nobody publishes, and each one's own word is told.
TEST_F(CoordinatorTest, CaseB36_OneOfThreeFailsAndNobodyPublishes) {
  std::vector<ConnectionId> ids;
  for (int32_t rank = 0; rank < 3; ++rank) {
    ids.push_back(connect(hello("a", rank, 3)));
  }
  start();
  for (auto id : ids) {
    reply(id);
  }
  stream_ended();
  vote(ids[0]);
  vote(ids[1]);
  vote(ids[2], false, {Code::kCorrupt, "chunk 3: digest differs"});
  for (auto id : ids) {
    EXPECT_FALSE(sent<Decision>(id).at(0).commit);
    finished(id, false);
  }
  ASSERT_TRUE(is_done());
  for (const RankReport& rank : report().ranks) {
    EXPECT_EQ(rank.version, (VersionStamp{0, 1}));
  }
  vote(ids[2], true);  // "finish" after the failure changes nothing
  EXPECT_FALSE(sent<Decision>(ids[2]).back().commit);
  EXPECT_TRUE(sent<Release>(ids[0]).empty());
}

TEST_F(CoordinatorTest, V1_ARankLostBeforeTheDecisionAbortsItsEngineOnly) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  const auto b0 = connect(hello("b", 0, 1));
  start();
  for (auto id : {a0, a1, b0}) {
    reply(id);
  }
  handle(Coordinator::Closed{a1, {Code::kUnavailable, "reset by peer"}});
  EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
  const auto dropped = actions<Coordinator::DropFromStream>();
  ASSERT_EQ(dropped.size(), 2u) << "both of engine a leave the stream, b goes on";
  finished(a0, false);
  stream_ended();
  vote(b0);
  finished(b0);
  ASSERT_TRUE(is_done());
  ASSERT_EQ(report().ranks.size(), 3u);
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kRestored);
  EXPECT_EQ(report().ranks[1].outcome, RankOutcome::kLost);
  EXPECT_THAT(report().ranks[1].error.message(), HasSubstr("reset by peer"));
  EXPECT_EQ(report().ranks[2].outcome, RankOutcome::kCommitted);
}

TEST_F(CoordinatorTest, V2_OnlyTheFirstVoteCountsAndALateOneGetsTheDecision) {
  const auto a0 = connect(hello("a", 0, 1));
  start();
  reply(a0);
  stream_ended();
  vote(a0, false, {Code::kCorrupt, "bad"});
  vote(a0, true);
  const auto decisions = sent<Decision>(a0);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_FALSE(decisions[0].commit);
  EXPECT_FALSE(decisions[1].commit) << "repeated, never changed";
}

TEST_F(CoordinatorTest, V2_AVoteForSomethingElseIsANo) {
  const auto a0 = connect(hello("a", 0, 1));
  start();
  reply(a0);
  stream_ended();
  Vote other{coordinator_.update(),  true, true, true, kV2, digest(9), Mode::kJournal,
             ranks_[a0].incarnation, {}};
  handle(Coordinator::Received{a0, other});
  EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
  EXPECT_THAT(sent<Decision>(a0)[0].reason.message(), HasSubstr(digest(9).to_text()));
}

TEST_F(CoordinatorTest, V3_ARefusalEndsTheEngineBeforeAnyPeerWrites) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  reply(a0);
  reply(a1, BeginKind::kRefused, {Code::kRefused, "a reload is open"});
  EXPECT_TRUE(actions<Coordinator::OpenStream>().empty());
  EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
  EXPECT_TRUE(sent<Decision>(a1).empty()) << "it began nothing";
  finished(a0, false);
  ASSERT_TRUE(is_done());
  EXPECT_THAT(report().ranks[1].error.message(), HasSubstr("a reload is open"));
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kRestored);
  EXPECT_EQ(report().ranks[1].outcome, RankOutcome::kRefused);
}

TEST_F(CoordinatorTest, V5_ADecisionIsGivenAgainToARankThatComesBack) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  reply(a0);
  reply(a1);
  stream_ended();
  vote(a0);
  vote(a1);
  const UpdateId id = coordinator_.update();
  finished(a0);
  handle(Coordinator::Closed{a1, {Code::kUnavailable, "cut"}});
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().ranks[1].outcome, RankOutcome::kLost);
  EXPECT_TRUE(sent<Release>(a0).empty()) << "V6: the gate stays shut, the engine pending";
  EXPECT_TRUE(coordinator_.peers()[0].pending);

  Hello back = hello("a", 1);
  back.prepared = id;
  const auto again = connect(back);
  ASSERT_EQ(sent<Decision>(again).size(), 1u);
  EXPECT_TRUE(sent<Decision>(again)[0].commit);
  EXPECT_TRUE(sent<Release>(a0).empty());
  finished(again);
  EXPECT_EQ(sent<Release>(a0).size(), 1u);
  EXPECT_EQ(sent<Release>(again).size(), 1u);
  EXPECT_FALSE(coordinator_.peers()[0].pending);
}

// Whoever lets a deadline pass is named, told the decision and then let go: its data connection may
// be what stands still, and a rank that has come back has a new one (case N15).
TEST_F(CoordinatorTest, R7_EachWaitEndsAndNamesForWhomItWaited) {
  const auto a0 = connect(hello("a", 0));
  auto a1 = connect(hello("a", 1));
  start();
  reply(a0);
  EXPECT_EQ(coordinator_.deadline(), now_ + seconds(5));
  wait(seconds(5));
  EXPECT_THAT(sent<Decision>(a0).at(0).reason.message(),
              HasSubstr("a/1: waited 5000 ms for its answer to the begin"));
  EXPECT_FALSE(sent<Decision>(a1).at(0).commit) << "it may have begun: it waits for no stream";
  expect_let_go(a1, "rank a/1: waited 5000 ms");
  finished(a0, false);
  ASSERT_TRUE(is_done());

  a1 = connect(hello("a", 1));
  start();
  reply(a0);
  reply(a1);
  stream_ended();
  vote(a1);
  wait(seconds(10));
  EXPECT_THAT(sent<Decision>(a1).at(0).reason.message(),
              HasSubstr("a/0: waited 10000 ms for its vote"));
  expect_let_go(a0, "rank a/0: waited 10000 ms");
  EXPECT_EQ(coordinator_.deadline(), now_ + seconds(10));
  wait(seconds(10));
  expect_let_go(a1, "rank a/1: waited 10000 ms for its word");
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kLost);
  EXPECT_EQ(report().ranks[1].outcome, RankOutcome::kLost);
  EXPECT_EQ(coordinator_.deadline(), Instant::never());
  EXPECT_TRUE(coordinator_.peers().empty());
}

// Case N15: who missed the vote is not begun again on its old connections; whether it had prepared
// or not, it is told what was decided when it comes back, and the next update commits.
TEST_F(CoordinatorTest, V2_V5_CaseN15_OneThatTimedOutComesBackAndTheNextCommits) {
  for (const bool had_prepared : {false, true}) {
    const auto a0 = connect(hello("a", 0, 1));
    start();
    reply(a0);
    stream_ended();
    const UpdateId id = coordinator_.update();
    wait(seconds(10));
    ASSERT_TRUE(is_done());
    EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
    expect_let_go(a0, "for its vote");
    start();
    EXPECT_TRUE(sent<Begin>(a0).empty());
    ASSERT_TRUE(is_done());

    Hello back = hello("a", 0, 1);
    back.gate_open = !had_prepared;
    if (had_prepared) {
      back.prepared = id;
    }
    const auto again = connect(back);
    ASSERT_EQ(sent<Decision>(again).size(), had_prepared ? 1u : 0u);
    EXPECT_FALSE(had_prepared && sent<Decision>(again)[0].commit);
    start();
    reply(again);
    stream_ended();
    vote(again);
    finished(again);
    EXPECT_TRUE(report().status.ok());
    handle(Coordinator::Closed{again, {Code::kUnavailable, "restarted"}});
  }
}

// A rank that proved itself may still say what makes no sense at that point of the update: it alone
// is let go, and every wait ends (rules R7, S3).
TEST_F(CoordinatorTest, S3_R7_FinishedBeforeAnythingWasDecidedLetsThatRankGo) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  finished(a0);
  expect_let_go(a0, "finished an update that is not decided");
  reply(a1);
  finished(a1, false);
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kLost);

  const auto b0 = connect(hello("b", 0, 1));
  start();
  reply(b0);
  stream_ended();
  finished(b0);
  expect_let_go(b0, "finished an update that is not decided");
  EXPECT_EQ(report().ranks.back().outcome, RankOutcome::kLost);
  EXPECT_EQ(coordinator_.deadline(), Instant::never());
}

TEST_F(CoordinatorTest, S3_R7_ARankLostAtBeginIsNotFoundAgainByItsFinished) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  const auto b0 = connect(hello("b", 0, 1));
  start();
  handle(Coordinator::Closed{a1, {Code::kUnavailable, "cut"}});
  reply(a0);
  reply(b0);
  const auto back = connect(hello("a", 1));
  finished(back);  // Of an update that it has not begun.
  stream_ended();
  vote(b0);
  EXPECT_TRUE(sent<Decision>(b0).at(0).commit);
  finished(a0, false);
  finished(b0);
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().ranks[1].outcome, RankOutcome::kLost);
}

TEST_F(CoordinatorTest, S3_R7_AskingForTheDigestThatBeginCarriedIsARefusal) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start(kV2, digest(2));
  reply(a0, BeginKind::kNeedDigest);
  reply(a1);
  EXPECT_FALSE(sent<Decision>(a1).at(0).commit);
  EXPECT_THAT(sent<Decision>(a1)[0].reason.message(), HasSubstr("a/0 refused the begin"));
  EXPECT_TRUE(actions<Coordinator::MakeDigest>().empty());
  finished(a1, false);
  EXPECT_TRUE(is_done());
}

TEST_F(CoordinatorTest, U2_ARankThatAsksForADigestGetsAnotherBegin) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  const UpdateId first = coordinator_.update();
  reply(a0, BeginKind::kNeedDigest);
  reply(a1);
  EXPECT_EQ(actions<Coordinator::MakeDigest>().size(), 1u);
  EXPECT_FALSE(sent<Decision>(a1).at(0).commit);
  EXPECT_TRUE(sent<Decision>(a0).empty());
  handle(Coordinator::DigestReady{digest(2)});
  EXPECT_NE(coordinator_.update(), first) << "an id is never used again";
  EXPECT_EQ(sent<Begin>(a0).at(1).digest, digest(2));
  reply(a0, BeginKind::kAlreadyThere);
  reply(a1);
  EXPECT_EQ(actions<Coordinator::OpenStream>().at(0).ranks, std::vector<ConnectionId>{a1});
  ranks_[a0].version = kV2;
  stream_ended();
  vote(a1);
  EXPECT_TRUE(sent<Decision>(a1).back().commit);
  finished(a1);
  EXPECT_TRUE(report().status.ok());
  EXPECT_EQ(report().ranks[0].outcome, RankOutcome::kAlreadyThere);
}

TEST_F(CoordinatorTest, T1_AlreadyThereEverywhereIsASuccessThatSendsNothing) {
  const auto a0 = connect(hello("a", 0, 1));
  start({0, 1}, digest(1));
  reply(a0, BeginKind::kAlreadyThere);
  ASSERT_TRUE(is_done());
  EXPECT_TRUE(report().status.ok());
  EXPECT_TRUE(actions<Coordinator::OpenStream>().empty());
}

// A vote is for the update whose id it carries, and counts for no other one.
TEST_F(CoordinatorTest, V2_AVoteOfAnEarlierUpdateDoesNotCount) {
  const auto a0 = connect(hello("a", 0));
  const auto a1 = connect(hello("a", 1));
  start();
  const UpdateId first = coordinator_.update();
  reply(a0);
  reply(a1);
  stream_ended();
  vote(a0, false, {Code::kCorrupt, "digest differs"});
  finished(a0, false);
  finished(a1, false);
  start();
  reply(a0);
  reply(a1);
  stream_ended();
  vote(a0);
  Vote old;
  old.id = first;
  old.ready = true;
  old.version = kV2;
  old.digest = digest(2);
  old.incarnation = ranks_[a1].incarnation;
  handle(Coordinator::Received{a1, old});
  EXPECT_TRUE(sent<Decision>(a0).empty()) << "one yes, and one that is not of this update";
  vote(a1);
  EXPECT_TRUE(sent<Decision>(a0).at(0).commit);
}

TEST_F(CoordinatorTest, V4_EachEngineDecidesForItself) {
  const auto a0 = connect(hello("a", 0, 1));
  const auto b0 = connect(hello("b", 0, 1));
  start();
  reply(a0);
  reply(b0);
  stream_ended();
  vote(a0, false, {Code::kCorrupt, "digest differs"});
  EXPECT_FALSE(sent<Decision>(a0).at(0).commit);
  EXPECT_TRUE(sent<Decision>(b0).empty()) << "it has not voted";
  vote(b0);
  EXPECT_TRUE(sent<Decision>(b0).at(0).commit);
  finished(b0);
  finished(a0, false);
  ASSERT_TRUE(is_done());
  EXPECT_FALSE(report().status.ok());
  EXPECT_EQ(report().ranks.at(1).outcome, RankOutcome::kCommitted);
  EXPECT_EQ(sent<Release>(b0).size(), 1u);
  EXPECT_TRUE(sent<Release>(a0).empty());
}

TEST_F(CoordinatorTest, U5_AVersionThatWasPassedOverIsNeverSent) {
  const auto a0 = connect(hello("a", 0, 1));
  start({1, 5});
  reply(a0, BeginKind::kRefused, {Code::kRefused, "busy"});
  start({1, 4});
  ASSERT_TRUE(is_done());
  EXPECT_TRUE(sent<Begin>(a0).empty());
  EXPECT_THAT(report().status.message(), HasSubstr("version 4 of epoch 1 was passed over"));
  const UpdateId refused = report().id;
  start({0, 9});
  EXPECT_THAT(report().status.message(), HasSubstr("version 9 was passed over"));
  EXPECT_GT(report().id, refused) << "each report has an id of its own";
  start({1, 5});
  EXPECT_EQ(sent<Begin>(a0).size(), 1u) << "the same one may be tried again";
}

TEST_F(CoordinatorTest, NobodyConnectedIsAnErrorAtOnce) {
  start();
  ASSERT_TRUE(is_done());
  EXPECT_EQ(report().status.code(), Code::kUnavailable);
}

TEST_F(CoordinatorTest, AStreamThatBreaksForAllAbortsEveryEngine) {
  const auto a0 = connect(hello("a", 0, 1));
  const auto b0 = connect(hello("b", 0, 1));
  start();
  reply(a0);
  reply(b0);
  handle(Coordinator::PeerLost{a0, {Code::kDeadline, "held the ring for 10 s"}});
  EXPECT_THAT(sent<Decision>(a0).at(0).reason.message(), HasSubstr("a/0 left the stream"));
  EXPECT_TRUE(sent<Decision>(b0).empty());
  handle(Coordinator::StreamEnded{{Code::kUnavailable, "source unreadable"}, {}, 0, 0});
  EXPECT_FALSE(sent<Decision>(b0).at(0).commit);
  finished(a0, false);
  finished(b0, false);
  EXPECT_EQ(report().status.message(), "source unreadable");
}

}  // namespace
}  // namespace changeover::protocol
