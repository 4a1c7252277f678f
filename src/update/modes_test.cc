// What the four modes have in common, and what staged and swap promise beyond it (rules T7-T11,
// T13, V6, R4, R5; cases B12, B60, N2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "update/toy_model_testing.h"
#include "update/transaction.h"

namespace changeover::update {
namespace {

using ::testing::HasSubstr;
using namespace testing;

constexpr VersionStamp kV1{0, 1};
constexpr VersionStamp kV2{0, 2};
constexpr VersionStamp kV3{0, 3};
const Status kWhy(Code::kAborted, "a peer failed");

std::string name_of(const ::testing::TestParamInfo<Mode>& mode) {
  return std::string(mode_name(mode.param));
}

class EveryMode : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, ::testing::ValuesIn(kAllModes), name_of);

// Modes that serve on while an update comes in.
class ServingMode : public ::testing::TestWithParam<Mode> {
 protected:
  ServingMode() { EXPECT_TRUE(update::testing::update(rank_, kV1, weights(1)).ok()); }
  Weights weights(uint64_t seed) const { return toy_weights(rank_.plan, seed); }
  std::vector<Sent> tensors(uint64_t seed) const { return all_tensors(rank_.plan, weights(seed)); }
  Transaction& transaction() { return *rank_.transaction; }
  Status begin_and_send(VersionStamp version, uint64_t seed) {
    CHANGEOVER_TRY(transaction().begin(version, std::nullopt, true).why);
    return send_all(transaction(), tensors(seed));
  }
  Status prepare(uint64_t seed) { return transaction().prepare(version_digest(tensors(seed))); }
  // A step gets in on this version, and reads it whole.
  void expect_serves(VersionStamp version, uint64_t seed) {
    const auto pin = rank_.fence.try_enter();
    ASSERT_TRUE(pin.has_value()) << rank_.fence.reason();
    EXPECT_EQ(pin->version, version);
    EXPECT_EQ(rank_.half(pin->half), rank_.cold(weights(seed)));
    (void)rank_.fence.leave(pin->half);
  }

  ToyRank rank_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, ServingMode, ::testing::Values(Mode::kStaged, Mode::kSwap),
                         name_of);

TEST_P(EveryMode, CaseB12_TwentyRoundsOfAnyBucketSizeAreByteEqualToAColdLoad) {
  ToyRank rank(GetParam());
  const size_t buckets[] = {1, 2, 5, rank.plan.sources.size()};
  const size_t runs[] = {1, 17, 64, 1 << 20};
  for (int64_t round = 1; round <= 20; ++round) {
    const auto index = static_cast<size_t>(round);
    const Weights weights = toy_weights(rank.plan, index % 7);
    ASSERT_TRUE(update::testing::update(rank, {0, round}, weights, buckets[index % 4],
                                        runs[(index / 4) % 4])
                    .ok());
    ASSERT_EQ(rank.live(), rank.cold(weights)) << round;
    EXPECT_EQ(rank.fence.try_enter(), (VersionStamp{0, round}));
    EXPECT_FALSE(rank.fence.leave(rank.fence.half()));
  }
}

// Addresses that captured graphs hold: the update before the last is where the last is, in `swap`
// alone one apart.
TEST_P(EveryMode, T13_OnlySwapChangesWhereTheLiveVersionIs) {
  ToyRank rank(GetParam());
  for (int64_t round = 1; round <= 4; ++round) {
    ASSERT_TRUE(update::testing::update(rank, {0, round}, toy_weights(rank.plan, 1)).ok());
    EXPECT_EQ(rank.fence.half(), GetParam() == Mode::kSwap ? round % 2 : 0) << round;
  }
}

TEST_P(EveryMode, R4_WhatTheModeHoldsIsInTheReport) {
  ToyRank rank(GetParam());
  ASSERT_TRUE(update::testing::update(rank, kV1, toy_weights(rank.plan, 1)).ok());
  const uint64_t once = rank.memory.bytes().size();
  EXPECT_EQ(rank.transaction->report().mode_memory_bytes, GetParam() == Mode::kInPlace ? 0 : once);
}

// Parameters that are held transposed and interleaved, with padding: the same bytes once more,
// under a new version, change nothing.
TEST_P(EveryMode, CaseN2_TheSameBytesAgainChangeNothing) {
  LoadPlan plan;
  plan.parameters = {{"down", DType::kU16, {5, 3}}, {"gate_up", DType::kU16, {5, 4}}};
  plan.sources = {{{"down", DType::kU16, {3, 5}}, {}},
                  {{"gate", DType::kU16, {2, 4}}, {}},
                  {{"up", DType::kU16, {2, 4}}, {}}};
  const View rows = box(0, {{2, 4}, {4, 1}});
  plan.pieces = {{0, 0, box(0, {{5, 1}, {3, 5}}), box(0, {{5, 3}, {3, 1}}), PieceOp::kCopy, ""},
                 {1, 1, rows, box(0, {{2, 8}, {4, 1}}), PieceOp::kCopy, "gate"},
                 {2, 1, rows, box(4, {{2, 8}, {4, 1}}), PieceOp::kCopy, "up"}};
  plan.paddings = {{1, box(16, {{4, 1}})}};
  ToyRank rank(GetParam(), plan);
  const Weights weights = toy_weights(plan, 3);
  ASSERT_TRUE(update::testing::update(rank, kV1, weights, 1).ok());
  const auto once = rank.live();
  ASSERT_EQ(once, rank.cold(weights));
  for (int64_t round = 2; round <= 4; ++round) {
    ASSERT_TRUE(update::testing::update(rank, {0, round}, weights, 1).ok());
    EXPECT_EQ(rank.live(), once);
  }
}

TEST_P(EveryMode, T8_AfterAnyAbortTheNextUpdateIsWhole) {
  ToyRank rank(GetParam());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  int64_t version = 0;
  for (size_t count = 0; count <= tensors.size(); ++count) {
    ASSERT_EQ(rank.transaction->begin({0, ++version}, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_frame(*rank.transaction, std::span(tensors).first(count), 5).ok());
    rank.transaction->abort(kWhy, false);
    const Weights weights = toy_weights(rank.plan, 10 + count);
    ASSERT_TRUE(update::testing::update(rank, {0, ++version}, weights).ok());
    ASSERT_EQ(rank.live(), rank.cold(weights)) << count;
    EXPECT_TRUE(rank.fence.open());
  }
}

TEST_P(ServingMode, T8_NoLiveByteIsTouchedAndNobodyIsKeptOutBeforeTheYes) {
  const auto sent = tensors(2);
  const int raises = rank_.raiser.raises;
  for (size_t count = 0; count <= sent.size(); ++count) {
    ASSERT_EQ(transaction().begin(kV2, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_frame(transaction(), std::span(sent).first(count), 5).ok());
    expect_serves(kV1, 1);
    EXPECT_FALSE(transaction().wrote());
    transaction().abort(kWhy, false);
    expect_serves(kV1, 1);
    EXPECT_EQ(transaction().report().outcome, RankOutcome::kRestored);
    EXPECT_EQ(transaction().version(), kV1);
  }
  ASSERT_TRUE(begin_and_send(kV2, 2).ok());
  ASSERT_TRUE(transaction().check(version_digest(sent)).ok());
  expect_serves(kV1, 1);
  EXPECT_EQ(rank_.raiser.raises, raises) << "serving was never stopped";
}

TEST_P(ServingMode, V6_FencedFromItsYesToItsFinish) {
  ASSERT_TRUE(begin_and_send(kV2, 2).ok());
  ASSERT_TRUE(transaction().check(version_digest(tensors(2))).ok());
  EXPECT_EQ(transaction().serves_on(), GetParam() == Mode::kStaged);
  EXPECT_FALSE(transaction().prepared());
  ASSERT_TRUE(prepare(2).ok());
  EXPECT_TRUE(transaction().prepared());
  EXPECT_FALSE(rank_.fence.try_enter());
  EXPECT_THAT(rank_.fence.reason(), HasSubstr("prepared version 2"));
  EXPECT_EQ(rank_.live(), rank_.cold(weights(1))) << "T8: live memory waits for the decision";
  transaction().finish();
  EXPECT_EQ(rank_.live(), rank_.cold(weights(2)));
  EXPECT_FALSE(rank_.fence.up());
  EXPECT_FALSE(rank_.fence.try_enter()) << "the release is not there";
  rank_.fence.open_gate();
  expect_serves(kV2, 2);
}

TEST_P(ServingMode, T8_AbortAfterTheYesServesOnWithTheOldVersion) {
  for (const bool keep_gate_shut : {false, true}) {
    ASSERT_TRUE(begin_and_send(kV2, 2).ok());
    ASSERT_TRUE(prepare(2).ok());
    transaction().abort(kWhy, keep_gate_shut);
    EXPECT_EQ(rank_.fence.gate_open(), !keep_gate_shut) << "V5: a peer may have finished";
    rank_.fence.open_gate();
    expect_serves(kV1, 1);
  }
}

// R5, U2: what fails late fails before anything was stopped.
TEST_P(ServingMode, R5_AFailedCheckLeavesTheEngineServing) {
  ASSERT_TRUE(begin_and_send(kV2, 2).ok());
  EXPECT_EQ(prepare(3).code(), Code::kCorrupt);
  expect_serves(kV1, 1);
  transaction().abort(kWhy, false);
  ASSERT_EQ(transaction().begin(kV2, {}, true).kind, BeginKind::kReady);
  const auto sent = tensors(2);
  ASSERT_TRUE(send_all(transaction(), std::span(sent).first(3)).ok());
  EXPECT_THAT(prepare(2).message(), HasSubstr("missing"));
  expect_serves(kV1, 1);
}

TEST_P(ServingMode, T9_AReloadBecomesLiveWhenItIsWhole) {
  const auto sent = tensors(4);
  ASSERT_TRUE(transaction().begin_reload(kV3).ok());
  for (size_t i = 0; i < sent.size(); ++i) {
    if (i == sent.size() / 2) {
      EXPECT_FALSE(transaction().finish_reload().ok());
      EXPECT_FALSE(rank_.fence.try_enter());
      EXPECT_FALSE(rank_.fence.try_enter(kV1)) << "nor by name";
      ASSERT_TRUE(transaction().begin_reload(kV3).ok());
    }
    ASSERT_TRUE(
        transaction()
            .reload_tensor(sent[i].spec.name,
                           {sent[i].spec.dtype, sent[i].spec.shape, {}, sent[i].bytes.data()})
            .ok());
  }
  ASSERT_TRUE(transaction().finish_reload().ok());
  rank_.fence.open_gate();
  expect_serves(kV3, 4);
}

// Case B60: a step that does not end is named, and the old version serves on.
TEST(Staged, T7_CaseB60_TheChangeOverWaitsForStepsInside) {
  ToyRank rank(Mode::kStaged);
  const Weights before = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV1, before).ok());
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_EQ(rank.fence.try_enter(), kV1);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok()) << "steps run during the stream";
  const Status status = rank.transaction->prepare(version_digest(tensors));
  EXPECT_EQ(status.code(), Code::kDeadline);
  EXPECT_EQ(rank.live(), rank.cold(before));
  rank.transaction->abort(status, false);
  EXPECT_FALSE(rank.fence.leave());
  EXPECT_TRUE(rank.fence.open());
}

class Swap : public ::testing::Test {
 protected:
  Swap() { EXPECT_TRUE(update::testing::update(rank_, kV1, toy_weights(rank_.plan, 1)).ok()); }
  std::vector<std::byte> cold(uint64_t seed) const {
    return rank_.cold(toy_weights(rank_.plan, seed));
  }
  Status update(VersionStamp version, uint64_t seed) {
    return update::testing::update(rank_, version, toy_weights(rank_.plan, seed));
  }
  void prepare(VersionStamp version, uint64_t seed) {
    const auto tensors = all_tensors(rank_.plan, toy_weights(rank_.plan, seed));
    ASSERT_EQ(rank_.transaction->begin(version, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_all(*rank_.transaction, tensors).ok());
    ASSERT_TRUE(rank_.transaction->prepare(version_digest(tensors)).ok());
  }
  void leave(const std::optional<FenceState::Pin>& pin) { (void)rank_.fence.leave(pin->half); }

  ToyRank rank_{Mode::kSwap};
};

TEST_F(Swap, V6_AGuardKeepsItsVersionAndHalfOverTheChange) {
  const auto guard = rank_.fence.try_enter();
  ASSERT_TRUE(guard.has_value());
  ASSERT_TRUE(update(kV2, 2).ok()) << "finish does not wait for it";
  EXPECT_EQ(rank_.half(guard->half), cold(1));
  const auto later = rank_.fence.try_enter();
  ASSERT_EQ(later, kV2);
  EXPECT_NE(later->half, guard->half);
  EXPECT_EQ(rank_.half(later->half), cold(2));
  leave(later);

  // The next update needs that half: its begin says who has it, and changes nothing (T2).
  const BeginOutcome begun = rank_.transaction->begin(kV3, {}, true);
  EXPECT_EQ(begun.kind, BeginKind::kRefused);
  EXPECT_THAT(begun.why.message(), HasSubstr("1 guard"));
  EXPECT_EQ(rank_.half(guard->half), cold(1));
  EXPECT_EQ(rank_.fence.try_enter(), kV2);
  leave(later);
  EXPECT_EQ(rank_.fence.try_enter(kV1), kV1) << "nor what can be had by name";
  leave(guard);
  EXPECT_TRUE(rank_.fence.leave(guard->half)) << "the last one out wakes a begin that waits";
  ASSERT_TRUE(update(kV3, 3).ok());
  EXPECT_EQ(rank_.live(), cold(3));
}

TEST_F(Swap, V6_AStepMayCarryItsVersion) {
  prepare(kV2, 2);
  const auto expect_only = [&](VersionStamp can, VersionStamp cannot, uint64_t seed) {
    EXPECT_FALSE(rank_.fence.try_enter(cannot));
    const auto pin = rank_.fence.try_enter(can);
    ASSERT_EQ(pin, can);
    EXPECT_EQ(rank_.half(pin->half), cold(seed));
    leave(pin);
  };
  EXPECT_FALSE(rank_.fence.try_enter());
  expect_only(kV1, kV2, 1);
  rank_.transaction->finish();
  EXPECT_FALSE(rank_.fence.try_enter());
  expect_only(kV1, kV2, 1);
  rank_.fence.open_gate();  // released: either may be named
  expect_only(kV1, kV3, 1);
  expect_only(kV2, kV3, 2);
  ASSERT_EQ(rank_.transaction->begin(kV3, {}, true).kind, BeginKind::kReady);
  expect_only(kV2, kV1, 2);
}

TEST_F(Swap, V5_InDoubtTheOldVersionCanStillBeNamed) {
  prepare(kV2, 2);
  EXPECT_EQ(rank_.transaction->report().outcome, RankOutcome::kInDoubt);
  const auto pin = rank_.fence.try_enter(kV1);
  ASSERT_EQ(pin, kV1);
  rank_.transaction->abort(kWhy, true);
  EXPECT_EQ(rank_.half(pin->half), cold(1));
  leave(pin);
}

TEST(Modes, MakeRefusesASecondHalfThatDoesNotFit) {
  ToyRank rank;
  for (const Mode mode : {Mode::kStaged, Mode::kSwap}) {
    TransactionOptions options;
    options.mode = mode;
    options.second = rank.second.parameters().first(3);
    const Status status =
        Transaction::make(rank.plan, rank.memory.parameters(), rank.fence, rank.raiser, options)
            .status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("second half"));
  }
}

}  // namespace
}  // namespace changeover::update
