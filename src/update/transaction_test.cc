// What begin accepts, and what finish and abort leave behind (rules T1-T3, T7, T8, T10, T11, T14).
#include "update/transaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "update/toy_model_testing.h"

namespace changeover::update {
namespace {

using ::testing::HasSubstr;
using namespace testing;

constexpr VersionStamp kV1{0, 1};
constexpr VersionStamp kV2{0, 2};
constexpr VersionStamp kV3{0, 3};
const Status kWhy(Code::kAborted, "a peer failed");

TEST(Transaction, ThreeRoundsAndBackAreByteEqualToAColdLoad) {
  for (Mode mode : kAllModes) {
    ToyRank rank(mode);
    int64_t version = 0;
    for (uint64_t seed : {1, 2, 1, 3, 2}) {  // A -> B -> A: "did it change" would not do.
      const Weights weights = toy_weights(rank.plan, seed);
      ASSERT_TRUE(update::testing::update(rank, {0, ++version}, weights).ok());
      ASSERT_EQ(rank.live(), rank.cold(weights)) << version;
      EXPECT_EQ(rank.fence.version(), (VersionStamp{0, version}));
    }
  }
}

TEST(Transaction, BothRanksOfTheEngineGetTheirOwnShards) {
  const Weights weights = toy_weights(toy_plan(), 9);
  ToyRank first(Mode::kInPlace, toy_plan(0));
  ToyRank second(Mode::kInPlace, toy_plan(1));
  ASSERT_TRUE(update::testing::update(first, kV1, weights).ok());
  ASSERT_TRUE(update::testing::update(second, kV1, weights).ok());
  EXPECT_EQ(first.live(), first.cold(weights));
  EXPECT_EQ(second.live(), second.cold(weights));
  EXPECT_NE(first.live(), second.live());
}

TEST(Transaction, T1_OnlyANewerVersionIsAccepted) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  EXPECT_FALSE(rank.transaction->version());
  EXPECT_EQ(rank.transaction->begin({0, -1}, {}, true).why.code(), Code::kInvalidArgument);
  EXPECT_EQ(rank.transaction->begin({-1, 0}, {}, true).why.code(), Code::kInvalidArgument);
  ASSERT_TRUE(update::testing::update(rank, {0, 37}, weights).ok());
  for (int64_t stale : {0, 36}) {
    const BeginOutcome outcome = rank.transaction->begin({0, stale}, {}, true);
    EXPECT_EQ(outcome.kind, BeginKind::kRefused);
    EXPECT_THAT(outcome.why.message(), HasSubstr("stale: " + std::to_string(stale)));
  }
  EXPECT_EQ(rank.transaction->begin({0, 38}, {}, true).kind, BeginKind::kReady);
}

TEST(Transaction, T1_AnEpochComparesFirstAndGoingBackNeedsAHigherOne) {
  ToyRank rank;
  ASSERT_TRUE(update::testing::update(rank, {1, 37}, toy_weights(rank.plan, 1)).ok());
  const BeginOutcome old = rank.transaction->begin({0, 99}, {}, true);
  EXPECT_EQ(old.kind, BeginKind::kRefused);
  EXPECT_THAT(old.why.message(), HasSubstr("stale epoch"));
  EXPECT_EQ(rank.transaction->begin({2, 0}, {}, true).kind, BeginKind::kReady);
}

TEST(Transaction, T1_OneUpdateAtATime) {
  ToyRank rank;
  ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  const BeginOutcome second = rank.transaction->begin(kV2, {}, true);
  EXPECT_EQ(second.kind, BeginKind::kRefused);
  EXPECT_THAT(second.why.message(), HasSubstr("still open"));
  EXPECT_EQ(rank.transaction->target(), kV1);
}

// Case B38 and T1: an old sender comes back; U2: a rank that needs the digest asks for it.
TEST(Transaction, CaseB38_StaleSameAndNewerVersions) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  const Digest digest = version_digest(all_tensors(rank.plan, weights));
  ASSERT_TRUE(update::testing::update(rank, {0, 37}, weights).ok());
  Transaction& transaction = *rank.transaction;
  EXPECT_THAT(transaction.begin({0, 0}, digest, true).why.message(), HasSubstr("stale: 0"));
  EXPECT_THAT(transaction.begin({0, 36}, digest, true).why.message(), HasSubstr("stale: 36"));
  EXPECT_EQ(transaction.begin({0, 37}, digest, true).kind, BeginKind::kAlreadyThere);
  const BeginOutcome other = transaction.begin({0, 37}, Digest{}, true);
  EXPECT_EQ(other.kind, BeginKind::kRefused);
  EXPECT_THAT(other.why.message(), HasSubstr("same version, other content"));
  EXPECT_EQ(transaction.begin({0, 37}, {}, true).kind, BeginKind::kNeedDigest);  // U2
  EXPECT_EQ(transaction.begin({0, 37}, {}, false).kind, BeginKind::kRefused);    // plain wire
  EXPECT_FALSE(transaction.is_open());
  EXPECT_EQ(transaction.begin({0, 38}, digest, true).kind, BeginKind::kReady);
}

TEST(Transaction, T2_ARefusedBeginChangesNothing) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV2, weights).ok());
  const int raises = rank.raiser.raises;
  ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kRefused);
  EXPECT_TRUE(rank.fence.open());
  EXPECT_EQ(rank.raiser.raises, raises);
  EXPECT_EQ(rank.transaction->version(), kV2);
  EXPECT_EQ(rank.live(), rank.cold(weights));
}

TEST(Transaction, T3_NothingOfAnAbortedUpdateCountsInTheNext) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  const auto tensors = all_tensors(rank.plan, weights);
  ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(4), 7).ok());
  rank.transaction->abort(kWhy, false);
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, std::span(tensors).subspan(4)).ok());
  const Status status = rank.transaction->prepare(version_digest(tensors));
  EXPECT_THAT(status.message(), HasSubstr("embed: missing"));
  rank.transaction->abort(kWhy, false);
  EXPECT_TRUE(update::testing::update(rank, kV3, weights).ok());
}

// What an aborted update saved is not put back by a later one, whose old version is another.
TEST(Transaction, T3_SavedBytesOfAnEarlierUpdateAreNotPutBack) {
  ToyRank rank(Mode::kJournal);
  for (int64_t version = 1; version <= 5; version += 2) {
    const Weights held = toy_weights(rank.plan, static_cast<uint64_t>(version));
    ASSERT_TRUE(update::testing::update(rank, {0, version}, held).ok());
    const auto next = all_tensors(rank.plan, toy_weights(rank.plan, 100));
    ASSERT_EQ(rank.transaction->begin({0, version + 1}, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_all(*rank.transaction, next).ok());
    rank.transaction->abort(kWhy, false);
    ASSERT_EQ(rank.live(), rank.cold(held)) << version;
  }
}

TEST(Transaction, T7_FenceRisesBeforeTheFirstByte) {
  ToyRank rank;
  const Weights before = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV1, before).ok());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  EXPECT_TRUE(rank.fence.open());
  const FrameTensor frame{&tensors[0].spec, 0, tensors[0].bytes.size()};
  ASSERT_TRUE(rank.transaction->on_frame({&frame, 1}).ok());
  EXPECT_TRUE(rank.fence.open()) << "metadata alone writes nothing";

  // A reader inside: nothing is written, and the old version goes on serving (case B60).
  ASSERT_EQ(rank.fence.try_enter(), kV1);
  const Status status = rank.transaction->apply(0, tensors[0].bytes);
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_EQ(rank.live(), rank.cold(before));
  EXPECT_FALSE(rank.transaction->wrote());
  EXPECT_FALSE(rank.fence.leave());
  rank.transaction->abort(status, false);
  EXPECT_EQ(rank.fence.try_enter(), kV1);
  EXPECT_FALSE(rank.fence.leave());

  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(rank.transaction->on_frame({&frame, 1}).ok());
  ASSERT_TRUE(rank.transaction->apply(0, std::span(tensors[0].bytes).first(1)).ok());
  EXPECT_TRUE(rank.fence.up());
  EXPECT_EQ(rank.fence.reason(), "receiving version 2");
}

TEST(Transaction, T8_AbortInJournalRestoresEveryByteAndLiftsTheFence) {
  ToyRank rank(Mode::kJournal);
  const Weights before = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV1, before).ok());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  for (size_t count = 0; count <= tensors.size(); ++count) {
    ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(count), 5).ok());
    rank.transaction->abort(kWhy, false);
    ASSERT_EQ(rank.live(), rank.cold(before)) << count;
    ASSERT_TRUE(rank.fence.open());
    EXPECT_EQ(rank.transaction->version(), kV1);
    EXPECT_EQ(rank.transaction->report().outcome, RankOutcome::kRestored);
    EXPECT_EQ(rank.transaction->report().error.message(), kWhy.message());
  }
}

TEST(Transaction, T8_AbortInPlaceStaysFencedOnceAByteWasWritten) {
  ToyRank rank(Mode::kInPlace);
  const Weights weights = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV1, weights).ok());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));

  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  rank.transaction->abort(kWhy, false);
  EXPECT_TRUE(rank.fence.open()) << "nothing was written";
  EXPECT_EQ(rank.transaction->report().outcome, RankOutcome::kRestored);

  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(1), 5).ok());
  rank.transaction->abort(kWhy, false);
  EXPECT_TRUE(rank.fence.up());
  EXPECT_THAT(rank.fence.reason(), HasSubstr("failed after it had written"));
  EXPECT_EQ(rank.transaction->version(), std::nullopt);
  EXPECT_EQ(rank.transaction->report().outcome, RankOutcome::kFenced);

  // A whole new update heals it, also with the version it once had; never with an older one.
  EXPECT_EQ(rank.transaction->begin({0, 0}, {}, true).kind, BeginKind::kRefused);
  ASSERT_TRUE(update::testing::update(rank, kV1, weights).ok());
  EXPECT_EQ(rank.live(), rank.cold(weights));
  EXPECT_TRUE(rank.fence.open());
}

// Memory that holds a mix stays behind its fence, whatever becomes of later updates that write
// nothing or, in a journal, put a mix back.
TEST(Transaction, T8_ALaterAbortDoesNotLiftTheFenceOfMixedMemory) {
  ToyRank rank(Mode::kInPlace);
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  ASSERT_TRUE(update::testing::update(rank, kV1, toy_weights(rank.plan, 1)).ok());
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(1), 5).ok());
  rank.transaction->abort(kWhy, false);
  ASSERT_EQ(rank.transaction->begin(kV3, {}, true).kind, BeginKind::kReady);
  rank.transaction->abort(kWhy, false);
  EXPECT_FALSE(rank.fence.try_enter());
  EXPECT_THAT(rank.fence.reason(), HasSubstr("version 2 failed after it had written"));
  EXPECT_EQ(rank.transaction->version(), std::nullopt);

  ToyRank other(Mode::kJournal);
  ASSERT_TRUE(update::testing::update(other, kV1, toy_weights(rank.plan, 1)).ok());
  ASSERT_TRUE(other.transaction->begin_reload(kV2).ok());
  ASSERT_TRUE(other.transaction
                  ->reload_tensor(
                      tensors[0].spec.name,
                      {tensors[0].spec.dtype, tensors[0].spec.shape, {}, tensors[0].bytes.data()})
                  .ok());
  ASSERT_FALSE(other.transaction->finish_reload().ok());
  const auto mixed = other.memory.bytes();
  ASSERT_EQ(other.transaction->begin(kV3, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*other.transaction, tensors, 5).ok());
  other.transaction->abort(kWhy, false);
  EXPECT_EQ(other.memory.bytes(), mixed) << "the journal saves what is there";
  EXPECT_FALSE(other.fence.try_enter());
  EXPECT_THAT(other.fence.reason(), HasSubstr("reload to version 2 is not complete"));
}

// A rank that lost a version is given that one again, with the content it had.
TEST(Transaction, T1_ALostVersionComesBackWithItsOwnContentOnly) {
  ToyRank rank(Mode::kInPlace);
  const Weights weights = toy_weights(rank.plan, 1);
  const auto own = all_tensors(rank.plan, weights);
  const auto other = all_tensors(rank.plan, toy_weights(rank.plan, 3));
  Transaction& transaction = *rank.transaction;
  ASSERT_TRUE(update::testing::update(rank, kV1, weights).ok());
  ASSERT_EQ(transaction.begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(transaction, std::span(other).first(1), 5).ok());
  transaction.abort(kWhy, false);

  const BeginOutcome known = transaction.begin(kV1, version_digest(other), true);
  EXPECT_EQ(known.kind, BeginKind::kRefused);
  EXPECT_THAT(known.why.message(), HasSubstr("same version 1"));
  EXPECT_THAT(known.why.message(), HasSubstr(version_digest(own).to_text()));
  ASSERT_EQ(transaction.begin(kV1, {}, true).kind, BeginKind::kReady) << "no digest is known yet";
  ASSERT_TRUE(send_all(transaction, other).ok());
  const Status found = transaction.prepare(version_digest(other));
  EXPECT_EQ(found.code(), Code::kRefused);
  EXPECT_THAT(found.message(), HasSubstr(version_digest(own).to_text()));
  transaction.abort(found, false);
  EXPECT_EQ(transaction.begin(kV1, version_digest(own), true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(transaction, own).ok());
  ASSERT_TRUE(transaction.prepare(version_digest(own)).ok());
  transaction.finish();
  EXPECT_EQ(rank.live(), rank.cold(weights));
}

// A rank may have no byte to write: all its parameters are empty. It waits for the decision behind
// its fence like its peers.
TEST(Transaction, V6_ARankThatWroteNothingIsFencedFromItsYesToo) {
  LoadPlan plan;
  plan.parameters.push_back({"empty", DType::kF16, {0, 4}});
  plan.sources.push_back({plan.parameters[0], {}});
  plan.pieces.push_back(
      {0, 0, box(0, {{0, 4}, {4, 1}}), box(0, {{0, 4}, {4, 1}}), PieceOp::kCopy, ""});
  ToyRank rank(Mode::kJournal, plan);
  ASSERT_TRUE(update::testing::update(rank, kV1, toy_weights(plan, 1)).ok());
  ASSERT_TRUE(rank.fence.open());
  const auto tensors = all_tensors(plan, toy_weights(plan, 2));
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok());
  EXPECT_TRUE(rank.fence.open());
  ASSERT_EQ(rank.fence.try_enter(), kV1);
  EXPECT_EQ(rank.transaction->prepare(version_digest(tensors)).code(), Code::kDeadline)
      << "a step inside keeps it from its yes";
  EXPECT_FALSE(rank.fence.leave());
  rank.transaction->abort(kWhy, false);
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok());
  ASSERT_TRUE(rank.transaction->prepare(version_digest(tensors)).ok());
  EXPECT_FALSE(rank.fence.try_enter());
  EXPECT_THAT(rank.fence.reason(), HasSubstr("prepared version 2"));
}

TEST(Transaction, T8_AbortOfAFirstUpdateLeavesARankWithoutAVersion) {
  for (Mode mode : kAllModes) {
    ToyRank rank(mode);
    const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
    ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(2), 5).ok());
    rank.transaction->abort(kWhy, false);
    EXPECT_TRUE(rank.fence.up());
    EXPECT_FALSE(rank.fence.try_enter());
    EXPECT_EQ(rank.transaction->version(), std::nullopt);
  }
}

TEST(Transaction, T10_FinishComesOnlyAfterPrepareAndShutsTheStepGate) {
  ToyRank rank;
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  Transaction& transaction = *rank.transaction;
  ASSERT_EQ(transaction.begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(transaction, tensors, 64).ok());
  EXPECT_FALSE(transaction.prepare(version_digest(tensors)).ok()) << "END has not come";
  transaction.abort(kWhy, false);
  ASSERT_EQ(transaction.begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(transaction, tensors).ok());
  transaction.finish();
  EXPECT_EQ(transaction.version(), std::nullopt) << "finish without prepare does nothing";
  rank.fence.open_gate();
  ASSERT_TRUE(transaction.prepare(version_digest(tensors)).ok());
  EXPECT_TRUE(rank.fence.up()) << "V6: fenced from its yes";
  EXPECT_EQ(transaction.report().outcome, RankOutcome::kInDoubt);
  transaction.finish();
  EXPECT_FALSE(rank.fence.up());
  EXPECT_FALSE(rank.fence.gate_open()) << "V6: steps wait for the release";
  EXPECT_THAT(rank.fence.reason(), HasSubstr("release of version 1"));
  EXPECT_EQ(transaction.report().outcome, RankOutcome::kCommitted);
}

TEST(Transaction, T11_AFailedUpdateNeverMovesTheVersion) {
  ToyRank rank;
  ASSERT_TRUE(update::testing::update(rank, kV1, toy_weights(rank.plan, 1)).ok());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok());
  ASSERT_TRUE(rank.transaction->prepare(version_digest(tensors)).ok());
  EXPECT_EQ(rank.fence.version(), kV1);
  rank.transaction->abort(kWhy, true);
  EXPECT_EQ(rank.fence.version(), kV1);
  EXPECT_FALSE(rank.fence.gate_open()) << "V5: a peer may have finished";
}

TEST(Transaction, T14_TheReportCountsWhatHappened) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  const auto tensors = all_tensors(rank.plan, weights);
  ASSERT_TRUE(update::testing::update(rank, kV1, weights, 1).ok());
  uint64_t sent = 0;
  for (const Sent& tensor : tensors) {
    sent += tensor.bytes.size();
  }
  const RankReport report = rank.transaction->report();
  EXPECT_EQ(report.rank, (RankName{"engine-a", 0}));
  EXPECT_EQ(report.version_before, std::nullopt);
  EXPECT_EQ(report.version, kV1);
  EXPECT_EQ(report.digest, version_digest(tensors));
  EXPECT_TRUE(report.digest_checked);
  EXPECT_EQ(report.pieces_expected, rank.plan.pieces.size());
  EXPECT_EQ(report.pieces_landed, rank.plan.pieces.size());
  EXPECT_EQ(report.bytes_received, sent);
  EXPECT_EQ(report.bytes_written, rank.live().size());
  EXPECT_EQ(report.buckets, tensors.size());
  EXPECT_FALSE(report.fenced);
  EXPECT_TRUE(report.error.ok());
}

TEST(Transaction, MakeRefusesWhatIsNotThereByName) {
  ToyRank rank;
  auto make = [&](const LoadPlan& plan, Mode mode, size_t journal) {
    TransactionOptions options;
    options.mode = mode;
    options.journal = std::span(rank.journal).first(journal);
    return Transaction::make(plan, rank.memory.parameters(), rank.fence, rank.raiser, options)
        .status();
  };
  EXPECT_THAT(make(rank.plan, Mode::kJournal, 10).message(), HasSubstr("journal has 10 bytes"));
  LoadPlan derived = rank.plan;
  derived.derived.push_back({{"norm"}, "amax", "norm_scale"});
  EXPECT_EQ(make(derived, Mode::kInPlace, 0).code(), Code::kRefused);
  LoadPlan torn = rank.plan;
  torn.pieces.pop_back();
  torn.pieces.pop_back();
  EXPECT_EQ(make(torn, Mode::kInPlace, 0).code(), Code::kInvalidArgument);
  LoadPlan silent_cast = rank.plan;
  for (Piece& piece : silent_cast.pieces) {
    piece.op = PieceOp::kCopy;
  }
  const Status status = make(silent_cast, Mode::kInPlace, 0);
  EXPECT_THAT(status.message(), HasSubstr("bfloat16"));
  EXPECT_THAT(status.message(), HasSubstr("float32"));
}

}  // namespace
}  // namespace changeover::update
