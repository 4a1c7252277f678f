// A rank's side over a real transaction (rules T2, T12, V2, V3, V5, V6, R1, R3, R7; cases B36, B38,
// B60, N15).
#include "protocol/rank_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/rank_machine_testing.h"

namespace changeover::protocol {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using namespace testing;
using update::testing::Sent;

class InPlaceRankMachineTest : public RankMachineTest {
 protected:
  InPlaceRankMachineTest() : RankMachineTest(Mode::kInPlace) {}
};

class StagedRankMachineTest : public RankMachineTest {
 protected:
  StagedRankMachineTest() : RankMachineTest(Mode::kStaged) {
    commit(id(1), 1);
    actions_.clear();
  }
  void expect_old_version_served() {
    EXPECT_EQ(rank_.fence.try_enter(), (VersionStamp{0, 1}));
    EXPECT_FALSE(rank_.fence.leave());
    EXPECT_EQ(rank_.live(), cold(1));
  }
};

TEST_F(StagedRankMachineTest, V6_VotesAtTheBoundaryAndNotBefore) {
  prepare(id(2), 2);
  EXPECT_EQ(machine_.phase_text(), "staged");
  EXPECT_EQ(machine_.staged_update(), id(2));
  EXPECT_TRUE(sent<Vote>().empty());
  expect_old_version_served();
  handle(RankMachine::AtBoundary{id(1)});
  EXPECT_EQ(machine_.phase_text(), "staged") << "of another update";
  wait(seconds(2));
  handle(RankMachine::AtBoundary{id(2)});
  handle(RankMachine::AtBoundary{id(2)});
  ASSERT_EQ(sent<Vote>().size(), 1u) << "V2";
  EXPECT_TRUE(sent<Vote>()[0].ready);
  EXPECT_FALSE(sent<Vote>()[0].wrote) << "T8: no live byte before the decision";
  EXPECT_TRUE(rank_.fence.up());
  now_ = now_ + seconds(1);
  receive(Decision{id(2), true, {}});
  EXPECT_EQ(rank_.live(), cold(2));
  EXPECT_EQ(sent<Finished>().at(0).report.seconds.pause, 1.0) << "not the stream, nor the wait";
  receive(Release{{0, 2}});
  EXPECT_TRUE(rank_.fence.open());
}

TEST_F(StagedRankMachineTest, R7_NoBoundaryIsANoThatSaysSo) {
  prepare(id(2), 2);
  ASSERT_LT(machine_.deadline(), now_ + Deadlines().vote) << "before the publisher gives up";
  wait(machine_.deadline() - now_);
  ASSERT_EQ(sent<Vote>().size(), 1u);
  EXPECT_THAT(sent<Vote>()[0].error.message(), HasSubstr("a step boundary of the engine"));
  EXPECT_EQ(sent<Finished>().at(0).report.outcome, RankOutcome::kRestored);
  EXPECT_EQ(sent<Finished>()[0].report.seconds.pause, 0.0);
  expect_old_version_served();
  handle(RankMachine::AtBoundary{id(2)});
  EXPECT_EQ(sent<Vote>().size(), 1u);
}

TEST_F(StagedRankMachineTest, V3_AnAbortWhileStagedStopsNothing) {
  prepare(id(2), 2);
  receive(Decision{id(2), false, {Code::kAborted, "a/1 voted no"}});
  EXPECT_FALSE(sent<Vote>().at(0).ready);
  expect_old_version_served();
  prepare(id(3), 3);
  disconnect();
  expect_old_version_served();
  EXPECT_EQ(machine_.staged_update(), std::nullopt);
}

// Where no step can run there is nothing to wait for.
TEST_F(StagedRankMachineTest, V6_AShutGateNeedsNoBoundary) {
  rank_.fence.shut_gate();
  prepare(id(2), 2);
  EXPECT_EQ(sent<Vote>().size(), 1u);
}

TEST_F(RankMachineTest, AWholeUpdate) {
  EXPECT_EQ(sent<Hello>().at(0).version, std::nullopt);
  EXPECT_TRUE(sent<Hello>()[0].fenced);
  prepare(id(1), 1);
  EXPECT_EQ(sent<BeginReply>().at(0).kind, BeginKind::kReady);
  ASSERT_EQ(sent<Vote>().size(), 1u);
  EXPECT_TRUE(sent<Vote>()[0].ready && sent<Vote>()[0].wrote);
  EXPECT_EQ(machine_.phase_text(), "prepared");
  receive(Decision{id(1), true, {}});
  const RankReport report = sent<Finished>().at(0).report;
  EXPECT_EQ(report.outcome, RankOutcome::kCommitted);
  EXPECT_EQ(report.version, (VersionStamp{0, 1}));
  EXPECT_EQ(rank_.live(), cold(1));
  EXPECT_EQ(machine_.updates_committed(), 1u);
}

TEST_F(RankMachineTest, BeginIsAnsweredAfterTheRankListens) {
  begin(id(1), 1);
  const auto is_open = [](const auto& action) {
    return std::holds_alternative<RankMachine::OpenStream>(action);
  };
  const auto is_reply = [](const auto& action) {
    const auto* send = std::get_if<RankMachine::Send>(&action);
    return send != nullptr && std::holds_alternative<BeginReply>(send->message);
  };
  EXPECT_LT(std::find_if(actions_.begin(), actions_.end(), is_open),
            std::find_if(actions_.begin(), actions_.end(), is_reply));
}

TEST_F(RankMachineTest, ARepeatedMessageGetsTheFirstAnswer) {
  begin(id(1), 1);
  begin(id(1), 1);
  ASSERT_EQ(sent<BeginReply>().size(), 2u);
  EXPECT_EQ(sent<BeginReply>()[1].kind, BeginKind::kReady);
  EXPECT_EQ(actions<RankMachine::OpenStream>().size(), 1u);
  stream();
  digest(id(1));
  receive(Decision{id(1), true, {}});
  receive(Decision{id(1), true, {}});
  receive(Decision{id(1), false, {Code::kAborted, "too late"}});
  ASSERT_EQ(sent<Finished>().size(), 3u);
  EXPECT_EQ(sent<Finished>()[2].report.outcome, RankOutcome::kCommitted);
  EXPECT_EQ(commits_, 1);
  begin(id(1), 1);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kReady) << "of one id, also when it is over";
  EXPECT_FALSE(rank_.transaction->is_open());
}

TEST_F(RankMachineTest, CaseB38_VersionsAreRefusedWithTheirNumbers) {
  commit(id(1), 37);
  for (int64_t stale : {0, 36}) {
    begin(id(static_cast<uint64_t>(100 + stale)), stale);
    EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kRefused);
    EXPECT_THAT(sent<BeginReply>().back().why.message(),
                HasSubstr("stale: " + std::to_string(stale)));
  }
  begin(id(200), 37);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kNeedDigest);
  begin(id(201), 38);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kReady);
}

TEST_F(RankMachineTest, T2_ARefusedBeginChangesNothing) {
  commit(id(1), 5);
  actions_.clear();
  Begin large;
  large.id = id(2);
  large.version = {0, 6};
  large.payload_bytes_max = 4097;
  receive(large);
  EXPECT_THAT(sent<BeginReply>().at(0).why.message(), HasSubstr("4097"));
  large.id = id(3);
  large.payload_bytes_max = 1;
  large.metadata_bytes_max = 4097;
  receive(large);
  EXPECT_EQ(sent<BeginReply>().at(1).why.code(), Code::kExhausted);
  begin(id(4, 8), 6);
  EXPECT_EQ(sent<BeginReply>().at(2).kind, BeginKind::kRefused) << "not who welcomed it";
  EXPECT_TRUE(actions<RankMachine::OpenStream>().empty());
  EXPECT_TRUE(rank_.fence.open());
  EXPECT_EQ(rank_.live(), cold(5));
}

// The publisher releases steps by what hellos said: a reload is told, the gate stays shut
// meanwhile.
TEST_F(RankMachineTest, V6_AReloadIsToldByAnotherHello) {
  commit(id(1), 1);
  actions_.clear();
  ASSERT_TRUE(rank_.transaction->begin_reload(VersionStamp{0, 7}).ok());
  handle(RankMachine::Reloaded{});
  ASSERT_EQ(sent<Hello>().size(), 1u);
  EXPECT_TRUE(sent<Hello>()[0].fenced);
  EXPECT_EQ(sent<Hello>()[0].version, std::nullopt);
  for (const Sent& one : tensors(7)) {
    ASSERT_TRUE(
        rank_.transaction
            ->reload_tensor(one.spec.name, {one.spec.dtype, one.spec.shape, {}, one.bytes.data()})
            .ok());
  }
  ASSERT_TRUE(rank_.transaction->finish_reload().ok());
  handle(RankMachine::Reloaded{});
  ASSERT_EQ(sent<Hello>().size(), 2u);
  EXPECT_EQ(sent<Hello>()[1].version, (VersionStamp{0, 7}));
  EXPECT_FALSE(sent<Hello>()[1].fenced || sent<Hello>()[1].gate_open);
  EXPECT_FALSE(rank_.fence.try_enter());
  receive(Release{{0, 1}});
  EXPECT_FALSE(rank_.fence.try_enter()) << "of the version before";
  receive(Release{{0, 7}});
  EXPECT_TRUE(rank_.fence.try_enter());
  EXPECT_FALSE(rank_.fence.leave());
  disconnect();
  actions_.clear();
  handle(RankMachine::Reloaded{});
  EXPECT_TRUE(actions_.empty()) << "the next connection's hello tells";
}

// Each way out of an update has its vote, and no more than that (V2).
TEST_F(RankMachineTest, V2_OneVoteOnEveryWayOut) {
  commit(id(1), 1);
  const auto expect_one_no = [&](const char* why) {
    ASSERT_EQ(sent<Vote>().size(), 1u) << why;
    EXPECT_FALSE(sent<Vote>()[0].ready) << why;
    EXPECT_FALSE(sent<Vote>()[0].error.ok()) << why;
    ASSERT_EQ(sent<Finished>().size(), 1u) << why;
    EXPECT_EQ(sent<Finished>()[0].report.outcome, RankOutcome::kRestored) << why;
    EXPECT_EQ(rank_.live(), cold(1)) << why;
    EXPECT_TRUE(rank_.fence.open()) << why;
    EXPECT_EQ(machine_.phase(), RankMachine::Phase::kIdle) << why;
    actions_.clear();
  };
  actions_.clear();

  begin(id(2), 2);  // R3: the road breaks
  stream(600, {Code::kUnavailable, "connection reset"});
  expect_one_no("road");

  begin(id(3), 3);  // U2: other content than the source
  stream();
  receive(SourceDigest{id(3), Digest{}});
  expect_one_no("digest");

  begin(id(4), 4);  // the decision comes in the middle of the stream
  stream(600);
  receive(Decision{id(4), false, {Code::kAborted, "a/1 died"}});
  EXPECT_EQ(actions<RankMachine::CloseStream>().size(), 1u);
  expect_one_no("abort in the stream");

  begin(id(5), 5);  // R7: no stream comes
  wait(seconds(15));
  EXPECT_THAT(sent<Vote>().at(0).error.message(), HasSubstr("waited 15000 ms"));
  expect_one_no("no stream");

  begin(id(6), 6);  // R7: no digest comes
  stream();
  wait(seconds(10));
  EXPECT_THAT(sent<Vote>().at(0).error.message(), HasSubstr("digest of version 6"));
  expect_one_no("no digest");

  begin(id(7),
        7);  // the publisher dies: it hears nothing, but asked later it gets the first answer
  stream(600);
  disconnect();
  EXPECT_TRUE(sent<Vote>().empty());
  EXPECT_EQ(rank_.live(), cold(1));
  connect();
  receive(Decision{id(7), false, {}});
  EXPECT_EQ(sent<Finished>().size(), 1u);
  EXPECT_TRUE(rank_.fence.open());
}

TEST_F(RankMachineTest, R1_AFailureInTheStreamIsVotedAtItsEnd) {
  commit(id(1), 1);
  begin(id(2), 2);
  actions_.clear();
  std::vector<Sent> wrong = tensors(2);
  wrong[1].spec.name = "nobody";
  const Bytes all = encode_stream(wrong, 64, 2);
  StreamReceiverOptions receiver_options;
  receiver_options.version = 2;
  receiver_options.payload_bytes_max = receiver_options.metadata_bytes_max = 4096;
  StreamReceiver receiver(receiver_options, sink_);
  EXPECT_EQ(feed(receiver, all, 50), all.size()) << "drained";
  EXPECT_TRUE(sent<Vote>().empty());
  handle(RankMachine::StreamEnded{receiver.result(), false, receiver.payload_bytes()});
  EXPECT_THAT(sent<Vote>().at(0).error.message(), HasSubstr("nobody"));
  EXPECT_EQ(sent<Finished>().at(0).report.bytes_received, receiver.payload_bytes());
}

TEST_F(InPlaceRankMachineTest, V3_AfterAFailedVoteNothingNewIsServed) {
  commit(id(1), 1);
  prepare(id(2), 2);
  receive(Decision{id(2), false, {Code::kAborted, "a/1 voted no"}});
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_EQ(sent<Finished>().back().report.outcome, RankOutcome::kFenced);
  EXPECT_EQ(sent<Finished>().back().report.version, std::nullopt);
  receive(Release{{0, 1}});
  receive(Release{{0, 2}});
  EXPECT_FALSE(rank_.fence.try_enter());
  commit(id(3), 3);
  EXPECT_TRUE(rank_.fence.open());
}

TEST_F(RankMachineTest, V5_StaysPreparedWithoutADecisionAndTakesItLate) {
  commit(id(1), 1);
  prepare(id(2), 2);
  disconnect();
  EXPECT_EQ(machine_.phase_text(), "in_doubt");
  EXPECT_EQ(actions<RankMachine::UpdateEnded>().back().report.outcome, RankOutcome::kInDoubt);
  wait(seconds(3600));
  EXPECT_TRUE(rank_.transaction->prepared());
  EXPECT_FALSE(rank_.fence.try_enter());
  connect();
  EXPECT_EQ(sent<Hello>().back().prepared, id(2));
  receive(Decision{id(2), true, {}});
  EXPECT_EQ(rank_.live(), cold(2));
}

TEST_F(RankMachineTest, V5_ANewPublishersBeginEndsWhatWasOnlyPrepared) {
  commit(id(1), 1);
  prepare(id(2), 5);
  disconnect();
  connect(33);
  begin(id(1, 33), 4);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kRefused) << "older than what is prepared";
  EXPECT_TRUE(rank_.transaction->prepared());
  begin(id(2, 33), 5);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kReady);
  EXPECT_EQ(rank_.live(), cold(1));
  EXPECT_FALSE(rank_.fence.gate_open()) << "a peer may have finished version 5";
  stream();
  digest(id(2, 33));
  receive(Decision{id(2, 33), true, {}});
  EXPECT_EQ(rank_.live(), cold(5));
}

TEST_F(RankMachineTest, V5_ThePublisherThatMadeItCannotBeginAnother) {
  prepare(id(1), 1);
  begin(id(2), 2);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kRefused);
  EXPECT_TRUE(rank_.transaction->prepared());
  for (uint64_t i = 3; i < 30; ++i) {
    begin(id(i), 2);  // refusals are remembered; they must not push out what is in doubt
  }
  wait(seconds(10));
  EXPECT_EQ(sent<Vote>().size(), 2u) << "it asks again";
  receive(Decision{id(1), true, {}});
  EXPECT_EQ(sent<Finished>().back().report.outcome, RankOutcome::kCommitted);
}

TEST_F(RankMachineTest, V5_ANewPublisherFindsWhatWasFinished) {
  prepare(id(1), 1);
  receive(Decision{id(1), true, {}});
  disconnect();
  connect(33);
  EXPECT_EQ(sent<Hello>().back().version, (VersionStamp{0, 1}));
  EXPECT_FALSE(sent<Hello>().back().gate_open);
  EXPECT_EQ(sent<Hello>().back().prepared, std::nullopt);
  Begin same;
  same.id = id(1, 33);
  same.version = {0, 1};
  same.digest = rank_.transaction->digest();
  receive(same);
  EXPECT_EQ(sent<BeginReply>().back().kind, BeginKind::kAlreadyThere);
  receive(Release{{0, 1}});
  EXPECT_TRUE(rank_.fence.open());
}

TEST_F(RankMachineTest, V6_FencedFromItsYesAndTheGateIsShutUntilTheRelease) {
  commit(id(1), 1);
  EXPECT_TRUE(rank_.fence.open());
  prepare(id(2), 2);
  EXPECT_TRUE(rank_.fence.up());
  handle(RankMachine::FenceRose{now_});
  receive(Decision{id(2), true, {}});
  EXPECT_FALSE(rank_.fence.up());
  EXPECT_FALSE(rank_.fence.try_enter());
  receive(Release{{0, 1}});
  EXPECT_FALSE(rank_.fence.try_enter()) << "of another version";
  now_ = now_ + seconds(2);
  receive(Release{{0, 2}});
  EXPECT_EQ(rank_.fence.try_enter(), (VersionStamp{0, 2}));
  EXPECT_DOUBLE_EQ(machine_.last_report()->seconds.pause, 2.0);
}

TEST_F(RankMachineTest, T14_EachPhaseHasItsOwnTime) {
  const auto pass = [this](int64_t count) { now_ = now_ + seconds(count); };
  commit(id(1), 1);
  check_takes_ = seconds(4);
  hook_takes_ = seconds(16);
  begin(id(2), 2);
  pass(1);
  handle(RankMachine::StreamStarted{});
  handle(RankMachine::FenceRose{now_});
  pass(2);
  stream();
  digest(id(2));
  pass(8);
  receive(Decision{id(2), true, {}});
  const PhaseSeconds done = sent<Finished>().back().report.seconds;
  EXPECT_DOUBLE_EQ(done.begin, 1);
  EXPECT_DOUBLE_EQ(done.receive, 2);
  EXPECT_DOUBLE_EQ(done.prepare, 4);
  EXPECT_DOUBLE_EQ(done.vote, 8);
  EXPECT_DOUBLE_EQ(done.finish, 16);
  EXPECT_DOUBLE_EQ(done.pause, 30);
  pass(32);
  receive(Release{{0, 2}});
  EXPECT_DOUBLE_EQ(machine_.last_report()->seconds.pause, 62);

  // Left in the middle, before anything was written: nothing was prepared, and nobody paused.
  begin(id(3), 3);
  pass(1);
  handle(RankMachine::StreamStarted{});
  pass(2);
  receive(Decision{id(3), false, {Code::kAborted, "a peer died"}});
  const PhaseSeconds left = sent<Finished>().back().report.seconds;
  EXPECT_DOUBLE_EQ(left.begin, 1);
  EXPECT_DOUBLE_EQ(left.receive, 2);
  EXPECT_DOUBLE_EQ(left.prepare, 0);
  EXPECT_DOUBLE_EQ(left.pause, 0);
}

TEST_F(RankMachineTest, T12_TheCommitHookRunsOnceAndIsReported) {
  commit(id(1), 1);
  EXPECT_EQ(commits_, 1);
  EXPECT_EQ(sent<Finished>().at(0).report.cache_policy, "flush");
  EXPECT_EQ(sent<Finished>()[0].report.cache_result, "flushed 3 blocks");
  begin(id(2), 2);
  stream(600, {Code::kUnavailable, "gone"});
  EXPECT_EQ(commits_, 1) << "not for an update that failed";
}

TEST_F(RankMachineTest, R7_EveryWaitOfTheMachineHasADeadline) {
  EXPECT_EQ(machine_.deadline(), Instant::never());
  begin(id(1), 1);
  EXPECT_EQ(machine_.deadline(), now_ + seconds(15));
  stream();
  EXPECT_EQ(machine_.deadline(), now_ + seconds(10));
  digest(id(1));
  EXPECT_EQ(machine_.deadline(), now_ + seconds(10));
  wait(seconds(10));
  EXPECT_EQ(machine_.phase(), RankMachine::Phase::kInDoubt);
  EXPECT_EQ(machine_.deadline(), now_ + seconds(10)) << "it asks again";
}

}  // namespace
}  // namespace changeover::protocol
