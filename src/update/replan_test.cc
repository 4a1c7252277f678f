// A layout that moved: the next update fills the same parameters by another plan (rule T15, case
// N1); and what the digest of a version finds that coverage cannot (cases B15, N6).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "update/toy_model_testing.h"
#include "update/transaction.h"

namespace changeover::update {
namespace {

using ::testing::HasSubstr;
using namespace testing;

// One layer's experts in a buffer of slots, each of 3 elements; slots[i] = the expert in slot i.
LoadPlan slots_plan(const std::vector<uint32_t>& slots) {
  LoadPlan plan;
  plan.parameters = {{"w2", DType::kBF16, {static_cast<int64_t>(slots.size()), 3}},
                     {"table", DType::kI32, {5}}};
  for (int expert = 0; expert < 4; ++expert) {
    plan.sources.push_back({{"experts." + std::to_string(expert), DType::kBF16, {3}}, {}});
  }
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    plan.pieces.push_back({slots[slot], 0, box(0, {{3, 1}}),
                           box(static_cast<int64_t>(slot) * 3, {{3, 1}}), PieceOp::kCopy, "down"});
  }
  plan.sources.push_back({{"table", DType::kI32, {5}}, {}});
  plan.pieces.push_back({4, 1, box(0, {{5, 1}}), box(0, {{5, 1}}), PieceOp::kCopy, ""});
  return plan;
}

class Replan : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Replan,
                         ::testing::Values(Mode::kInPlace, Mode::kJournal, Mode::kStaged,
                                           Mode::kSwap),
                         [](const auto& info) { return std::string(mode_name(info.param)); });

TEST_P(Replan, T15_CaseN1_TheNextUpdateFillsTheSlotsOfTheNewPlan) {
  ToyRank rank(GetParam(), slots_plan({0, 2, 1, 3, 1}));
  ASSERT_TRUE(update(rank, {0, 1}, toy_weights(rank.plan, 1)).ok());
  EXPECT_EQ(rank.live(), rank.cold(toy_weights(rank.plan, 1)));
  rank.plan = slots_plan({3, 3, 0, 1, 2});
  ASSERT_TRUE(rank.transaction->replan(rank.plan, rank.memory.parameters()).ok());
  EXPECT_EQ(rank.transaction->version(), (VersionStamp{0, 1}));
  EXPECT_TRUE(rank.fence.open());
  for (int64_t version = 2; version <= 4; ++version) {
    const Weights weights = toy_weights(rank.plan, static_cast<uint64_t>(version));
    ASSERT_TRUE(update(rank, {0, version}, weights).ok());
    EXPECT_EQ(rank.live(), rank.cold(weights)) << version;
  }
  // An abort after the move puts back what the new plan overwrote, and no more.
  const auto before = rank.live();
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 9));
  ASSERT_EQ(rank.transaction->begin({0, 5}, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_frame(*rank.transaction, {tensors.data(), 2}, 64).ok());
  rank.transaction->abort({Code::kAborted, "told to"}, false);
  if (GetParam() != Mode::kInPlace) {
    EXPECT_EQ(rank.live(), before);
  }
}

TEST(ReplanRefused, T15_CaseN1_NotUnderAnOpenUpdateNorForOtherParameters) {
  ToyRank rank(Mode::kJournal, slots_plan({0, 1, 2, 3}));
  ASSERT_EQ(rank.transaction->begin({0, 1}, {}, true).kind, BeginKind::kReady);
  const LoadPlan moved = slots_plan({3, 2, 1, 0});
  EXPECT_THAT(rank.transaction->replan(moved, rank.memory.parameters()).message(),
              HasSubstr("an update is open"));
  rank.transaction->abort({Code::kAborted, "told to"}, false);
  EXPECT_EQ(rank.transaction->replan(slots_plan({0, 1, 2, 3, 3}), rank.memory.parameters()).code(),
            Code::kInvalidArgument);
  LoadPlan gap = moved;
  gap.pieces.erase(gap.pieces.begin());
  EXPECT_THAT(rank.transaction->replan(gap, rank.memory.parameters()).message(),
              HasSubstr("no piece wants it"));
  ASSERT_TRUE(rank.transaction->begin_reload(VersionStamp{0, 1}).ok());
  EXPECT_THAT(rank.transaction->replan(moved, rank.memory.parameters()).message(),
              HasSubstr("a reload is open"));
  EXPECT_FALSE(rank.transaction->finish_reload().ok());
  EXPECT_TRUE(rank.transaction->replan(moved, rank.memory.parameters()).ok());
}

// Every byte landed, every piece counted: only the digest of the version tells that expert 2 came
// with the content of expert 1.
TEST(VersionDigest, U2_CaseB15_TwoExpertsWithOneContentAreFound) {
  ToyRank rank(Mode::kJournal, slots_plan({0, 1, 2, 3}));
  const Weights weights = toy_weights(rank.plan, 1);
  const auto source = all_tensors(rank.plan, weights);
  Weights sent = weights;
  sent["experts.2"] = weights.at("experts.1");
  const auto tensors = all_tensors(rank.plan, sent);
  ASSERT_EQ(rank.transaction->begin({0, 1}, version_digest(source), true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors, 1).ok());
  const Status status = rank.transaction->prepare(version_digest(source));
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(version_digest(source).to_text()));
}

TEST(Buffers, U4_T5_CaseN6_ARoutingTableThatIsMissingIsNamedAndOneOfZerosIsFound) {
  ToyRank rank(Mode::kJournal, slots_plan({0, 1, 2, 3}));
  const Weights weights = toy_weights(rank.plan, 1);
  auto tensors = all_tensors(rank.plan, weights);
  const Digest digest = version_digest(tensors);
  ASSERT_EQ(rank.transaction->begin({0, 1}, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, {tensors.data(), 4}, 1).ok());
  EXPECT_THAT(rank.transaction->prepare(version_digest(std::span(tensors).first(4))).message(),
              HasSubstr("table: missing, comes from \"table\""));
  rank.transaction->abort({Code::kAborted, "told to"}, false);

  Weights zeros = weights;
  std::fill(zeros["table"].begin(), zeros["table"].end(), std::byte{0});
  tensors = all_tensors(rank.plan, zeros);
  ASSERT_EQ(rank.transaction->begin({0, 1}, digest, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors, 1).ok());
  EXPECT_EQ(rank.transaction->prepare(version_digest(tensors)).code(), Code::kCorrupt);
  rank.transaction->abort({Code::kAborted, "told to"}, false);
  ASSERT_TRUE(update(rank, {0, 1}, weights).ok());
  EXPECT_EQ(rank.live(), rank.cold(weights));
}

}  // namespace
}  // namespace changeover::update
