// Reloads outside an update, counted by the same ledger (rule T9).
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

class Reload : public ::testing::Test {
 protected:
  Status write(const Sent& sent) {
    return rank_.transaction->reload_tensor(
        sent.spec.name, {sent.spec.dtype, sent.spec.shape, {}, sent.bytes.data()});
  }
  // One reload of tensors [first, last).
  Status reload(std::optional<VersionStamp> version, size_t first, size_t last) {
    CHANGEOVER_TRY(rank_.transaction->begin_reload(version));
    for (size_t i = first; i < last; ++i) {
      CHANGEOVER_TRY(write(tensors_[i]));
    }
    return rank_.transaction->finish_reload();
  }

  ToyRank rank_;
  const Weights weights_ = toy_weights(rank_.plan, 5);
  const std::vector<Sent> tensors_ = all_tensors(rank_.plan, weights_);
  const size_t count_ = tensors_.size();
};

TEST_F(Reload, T9_V6_AWholeOneLiftsTheFenceUnderItsVersionAndShutsTheGate) {
  ASSERT_TRUE(update::testing::update(rank_, {0, 0}, weights_).ok());
  ASSERT_TRUE(rank_.fence.open());
  ASSERT_TRUE(reload(kV1, 0, count_).ok());
  EXPECT_EQ(rank_.live(), rank_.cold(weights_));
  EXPECT_FALSE(rank_.fence.up());
  EXPECT_FALSE(rank_.fence.try_enter()) << "the engine's other ranks may hold another version";
  rank_.fence.open_gate();
  EXPECT_EQ(rank_.fence.try_enter(), kV1);
  EXPECT_EQ(rank_.transaction->version(), kV1);
}

TEST_F(Reload, T9_SeveralOfOneVersionAddUpAndTensorsMayComeAgain) {
  EXPECT_THAT(reload(kV1, 0, count_ / 2).message(), HasSubstr("fence stays up"));
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_TRUE(reload(kV1, count_ / 2 - 2, count_).ok());
  EXPECT_FALSE(rank_.fence.up());
  EXPECT_EQ(rank_.live(), rank_.cold(weights_));
}

TEST_F(Reload, T9_AnotherVersionRestartsTheCount) {
  EXPECT_FALSE(reload(kV1, 0, count_ / 2).ok());
  EXPECT_FALSE(reload(kV2, count_ / 2, count_).ok());
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_FALSE(reload(std::nullopt, 0, count_ / 2).ok());
  EXPECT_TRUE(rank_.fence.up());
}

TEST_F(Reload, T9_ThoseThatNameNoneCountAsOneAndEndInUnknown) {
  EXPECT_FALSE(reload(std::nullopt, 0, 5).ok());
  EXPECT_TRUE(reload(std::nullopt, 5, count_).ok());
  EXPECT_EQ(rank_.fence.version(), kVersionUnknown);
  EXPECT_EQ(rank_.transaction->version(), std::nullopt);
}

TEST_F(Reload, T9_AnEmptyOneOrOneThatMatchedNothingLiftsNothing) {
  ASSERT_TRUE(update::testing::update(rank_, kV1, weights_).ok());
  EXPECT_THAT(reload(kV2, 0, 0).message(), HasSubstr("matched nothing"));
  EXPECT_TRUE(rank_.fence.up());
  ASSERT_TRUE(rank_.transaction->begin_reload(kV2).ok());
  Sent unknown = tensors_[0];
  unknown.spec.name = "nobody";
  EXPECT_FALSE(write(unknown).ok());
  EXPECT_FALSE(rank_.transaction->finish_reload().ok());
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_FALSE(reload(kV2, 0, count_ - 1).ok());
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_FALSE(reload(kV2, 0, 0).ok());
  EXPECT_TRUE(rank_.fence.up());
}

TEST_F(Reload, T9_WhatAnAbortedUpdateWroteDoesNotCount) {
  ASSERT_EQ(rank_.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank_.transaction, tensors_, 64).ok());
  rank_.transaction->abort({Code::kAborted, "gone"}, false);
  EXPECT_FALSE(reload(kV1, 1, count_).ok());
  EXPECT_TRUE(rank_.fence.up());
}

TEST_F(Reload, T9_NeverWhileAnUpdateIsOpenAndNoUpdateWhileOneIs) {
  ASSERT_EQ(rank_.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  EXPECT_EQ(rank_.transaction->begin_reload(kV1).code(), Code::kRefused);
  rank_.transaction->abort({}, false);
  ASSERT_TRUE(rank_.transaction->begin_reload(kV1).ok());
  EXPECT_EQ(rank_.transaction->begin_reload(kV1).code(), Code::kRefused);
  EXPECT_EQ(rank_.transaction->begin(kV2, {}, true).kind, BeginKind::kRefused);
  EXPECT_FALSE(rank_.transaction->finish_reload().ok());
  EXPECT_EQ(rank_.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
}

TEST_F(Reload, T9_NeverGoesBehindACommittedVersion) {
  ASSERT_TRUE(update::testing::update(rank_, kV2, weights_).ok());
  EXPECT_THAT(rank_.transaction->begin_reload(kV1).message(), HasSubstr("stale"));
  EXPECT_TRUE(rank_.fence.open()) << "a refused reload changes nothing";
}

// A reload of a declared version is a commit like another: nothing goes behind it.
TEST_F(Reload, T9_T1_NothingGoesBehindAReload) {
  ASSERT_TRUE(reload(kV2, 0, count_).ok());
  EXPECT_EQ(rank_.transaction->begin(kV1, {}, true).kind, BeginKind::kRefused);
  EXPECT_EQ(rank_.transaction->begin_reload(kV1).code(), Code::kRefused);
  ASSERT_TRUE(reload(std::nullopt, 0, count_).ok());
  EXPECT_EQ(rank_.fence.version(), kVersionUnknown) << "version 2 is not here any more";
  EXPECT_EQ(rank_.transaction->begin(kV1, {}, true).kind, BeginKind::kRefused);
  EXPECT_EQ(rank_.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
}

TEST_F(Reload, T9_WhileItRunsTheRankHoldsNoVersion) {
  ASSERT_TRUE(update::testing::update(rank_, kV1, weights_).ok());
  ASSERT_TRUE(rank_.transaction->begin_reload(kV1).ok());
  EXPECT_EQ(rank_.transaction->version(), std::nullopt);
  EXPECT_EQ(rank_.transaction->digest(), std::nullopt);
  EXPECT_TRUE(rank_.transaction->report().fenced);
  EXPECT_FALSE(rank_.transaction->finish_reload().ok());
  EXPECT_EQ(rank_.transaction->version(), std::nullopt) << "nor when it ended half way";
  EXPECT_EQ(rank_.transaction->begin(kV1, {}, true).kind, BeginKind::kReady) << "T1: lost";
}

// What was rewritten under a version that was there before is that version's content from then on.
TEST_F(Reload, T9_T1_ItsContentTakesThePlaceOfTheVersionsOld) {
  ASSERT_TRUE(update::testing::update(rank_, kV1, toy_weights(rank_.plan, 9)).ok());
  ASSERT_TRUE(reload(kV1, 0, count_).ok());
  ASSERT_FALSE(reload(kV1, 0, 1).ok());
  ASSERT_EQ(rank_.transaction->begin(kV1, version_digest(tensors_), true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank_.transaction, tensors_).ok());
  EXPECT_TRUE(rank_.transaction->prepare(version_digest(tensors_)).ok());
}

// One that met an error lifts nothing, though every parameter was rewritten before; nor does an
// empty one after it.
TEST_F(Reload, T9_OneThatFailedLiftsNothing) {
  ASSERT_TRUE(rank_.transaction->begin_reload(kV1).ok());
  for (const Sent& sent : tensors_) {
    ASSERT_TRUE(write(sent).ok());
  }
  Sent unknown = tensors_[0];
  unknown.spec.name = "nobody";
  ASSERT_FALSE(write(unknown).ok());
  EXPECT_THAT(rank_.transaction->finish_reload().message(), HasSubstr("nobody"));
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_THAT(reload(kV1, 0, 0).message(), HasSubstr("matched nothing"));
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_TRUE(reload(kV1, 0, 1).ok()) << "the others were rewritten since the fence rose";
  EXPECT_FALSE(rank_.fence.up());
}

TEST_F(Reload, T9_OneThatIsDroppedIsOverAndTheFenceStaysUp) {
  ASSERT_TRUE(rank_.transaction->begin_reload(kV1).ok());
  for (const Sent& sent : tensors_) {
    ASSERT_TRUE(write(sent).ok());
  }
  rank_.transaction->drop_reload();
  EXPECT_TRUE(rank_.fence.up());
  EXPECT_EQ(rank_.transaction->version(), std::nullopt);
  EXPECT_FALSE(write(tensors_[0]).ok());
  ASSERT_TRUE(reload(kV1, 0, count_).ok()) << "another can be begun";
  ASSERT_TRUE(rank_.transaction->begin_reload(kV2).ok());
  rank_.transaction->drop_reload();
  EXPECT_TRUE(update::testing::update(rank_, kV2, weights_).ok()) << "or an update";
}

TEST_F(Reload, T9_AReaderInsideHoldsItBack) {
  ASSERT_TRUE(update::testing::update(rank_, kV1, weights_).ok());
  ASSERT_TRUE(rank_.fence.try_enter());
  EXPECT_EQ(rank_.transaction->begin_reload(kV2).code(), Code::kDeadline);
  EXPECT_FALSE(rank_.fence.leave());
  EXPECT_EQ(rank_.fence.try_enter(), kV1);
}

TEST_F(Reload, AStridedTensorArrivesAsWhatItLooksLike) {
  ASSERT_TRUE(rank_.transaction->begin_reload(kV1).ok());
  for (const Sent& sent : tensors_) {
    if (sent.spec.name != "layers.0.o.weight") {
      ASSERT_TRUE(write(sent).ok());
      continue;
    }
    std::vector<std::byte> transposed(sent.bytes.size());
    for (size_t row = 0; row < 5; ++row) {
      for (size_t column = 0; column < 6; ++column) {
        std::memcpy(&transposed[2 * (column * 5 + row)], &sent.bytes[2 * (row * 6 + column)], 2);
      }
    }
    ASSERT_TRUE(
        rank_.transaction
            ->reload_tensor(sent.spec.name, {DType::kBF16, {5, 6}, {1, 5}, transposed.data()})
            .ok());
  }
  ASSERT_TRUE(rank_.transaction->finish_reload().ok());
  EXPECT_EQ(rank_.live(), rank_.cold(weights_));
}

}  // namespace
}  // namespace changeover::update
