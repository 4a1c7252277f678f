#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/model_fixture.h"
#include "model/view.h"

namespace changeover {
namespace {

using ::testing::HasSubstr;

// One parameter [4, 6] from two sources of [4, 3], side by side.
LoadPlan two_halves() {
  LoadPlan plan;
  plan.parameters = {{"p", DType::kBF16, {4, 6}}};
  plan.sources = {{{"a", DType::kBF16, {4, 3}}, {}}, {{"b", DType::kBF16, {4, 3}}, {}}};
  const View whole{0, {{12, 1}}};
  plan.pieces = {{0, 0, {0, {{4, 3}, {3, 1}}}, {0, {{4, 6}, {3, 1}}}, PieceOp::kCopy, "left"},
                 {1, 0, {0, {{4, 3}, {3, 1}}}, {3, {{4, 6}, {3, 1}}}, PieceOp::kCopy, "right"}};
  return plan;
}

std::string refusal(const LoadPlan& plan) {
  return prove_load_plan(plan).message();
}

TEST(ProveLoadPlan, T4_PiecesThatTileAreAccepted) {
  EXPECT_EQ(refusal(two_halves()), "");
}

TEST(ProveLoadPlan, T4_AGapNamesParameterAndElement) {
  LoadPlan plan = two_halves();
  plan.pieces[1].source_view = {0, {{4, 3}, {2, 1}}};
  plan.pieces[1].target_view = {3, {{4, 6}, {2, 1}}};
  EXPECT_THAT(refusal(plan),
              HasSubstr("parameter \"p\": nothing fills element [0, 5] of bfloat16"));
  plan.paddings = {{0, {5, {{4, 6}}}}};
  EXPECT_EQ(refusal(plan), "");
  plan.pieces.pop_back();
  EXPECT_THAT(refusal(plan), HasSubstr("source \"b\": no piece wants it"));
  plan.sources.pop_back();
  EXPECT_THAT(refusal(plan), HasSubstr("nothing fills element [0, 3]"));
}

TEST(ProveLoadPlan, T4_AnOverlapNamesBothPieces) {
  LoadPlan plan = two_halves();
  plan.pieces[1].target_view.offset = 2;
  EXPECT_THAT(refusal(plan), HasSubstr("piece 0 (\"left\" of \"a\") and piece 1 (\"right\" of "
                                       "\"b\") both fill element [0, 2] (rule T4)"));
  plan = two_halves();
  plan.paddings = {{0, {23, {}}}};
  EXPECT_THAT(refusal(plan), HasSubstr("padding 0 both fill element [3, 5]"));
}

TEST(ProveLoadPlan, T4_OneRunPieces) {
  LoadPlan plan = two_halves();
  plan.pieces[0].source_view = plan.pieces[1].source_view = {0, {{12, 1}}};
  plan.pieces[0].target_view = {12, {{12, 1}}};
  plan.pieces[1].target_view = {0, {{12, 1}}};
  EXPECT_EQ(refusal(plan), "");
  plan.pieces[1].source_view = plan.pieces[1].target_view = {0, {{11, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("nothing fills element [1, 5]"));
  plan.pieces[1].target_view = {0, {{11, 1}}};
  plan.pieces[0].target_view = {11, {{12, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("nothing fills element [3, 5]"));
  plan.pieces[0].target_view = {10, {{12, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("both fill element [1, 4]"));
}

TEST(ProveLoadPlan, T4_AViewThatMeetsItselfIsRefused) {
  LoadPlan plan = two_halves();
  plan.pieces[0].target_view = {0, {{4, 1}, {3, 1}}};  // Equal strides.
  EXPECT_THAT(refusal(plan), HasSubstr("both fill"));
  // Equal strides whose extents share a divisor look like disjoint blocks of it.
  LoadPlan blocks = two_halves();
  blocks.parameters[0].shape = {16};
  blocks.pieces.pop_back();
  blocks.sources.pop_back();
  blocks.pieces[0].source_view = {0, {{4, 1}, {2, 1}}};
  blocks.pieces[0].target_view = {0, {{4, 1}, {2, 1}}};
  blocks.paddings = {{0, {4, {{12, 1}}}}};
  EXPECT_THAT(refusal(blocks), HasSubstr("both fill element [1]"));
  plan.pieces[0].target_view = {0, {{4, 2}, {3, 1}}};  // A stride shorter than the run.
  EXPECT_THAT(refusal(plan), HasSubstr("both fill element [0, 2]"));
  plan.pieces[0].target_view = {0, {{4, 0}, {3, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("strides are positive"));
  plan.pieces[0].target_view = {11, {{4, -1}, {3, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("strides are positive"));
}

TEST(ProveLoadPlan, T4_ViewsStayInsideTheirTensors) {
  LoadPlan plan = two_halves();
  plan.pieces[1].target_view.offset = 4;
  EXPECT_THAT(refusal(plan), HasSubstr("piece 1: view of parameter \"p\": reaches outside"));
  plan = two_halves();
  plan.pieces[0].source_view.offset = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("piece 0: view of source \"a\": reaches outside"));
  plan.pieces[0].source_view.offset = -1;
  EXPECT_THAT(refusal(plan), HasSubstr("reaches outside"));
  plan = two_halves();
  plan.pieces[0].source_view.dims[0] = {INT64_MAX, INT64_MAX};
  plan.pieces[0].source_view.dims.resize(8, {INT64_MAX, INT64_MAX});
  EXPECT_THAT(refusal(plan), HasSubstr("reaches outside"));
  plan.pieces[0].source_view.dims.resize(9, {1, 1});
  EXPECT_THAT(refusal(plan), HasSubstr("9 dimensions, at most 8"));
  plan = two_halves();
  plan.pieces[0].source_view.dims[0].extent = -4;
  EXPECT_THAT(refusal(plan), HasSubstr("extents are not negative"));
}

TEST(ProveLoadPlan, T4_ViewsOfAPieceAgree) {
  LoadPlan plan = two_halves();
  plan.pieces[0].source_view = {0, {{12, 1}}};
  EXPECT_THAT(refusal(plan), HasSubstr("differ in their extents"));
  plan = two_halves();
  plan.pieces[0].source = 2;
  EXPECT_THAT(refusal(plan), HasSubstr("source 2 of 2"));
  plan.pieces[0].source = 0;
  plan.pieces[0].parameter = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("parameter 1 of 1"));
  plan = two_halves();
  plan.paddings = {{7, {0, {}}}};
  EXPECT_THAT(refusal(plan), HasSubstr("padding 0: parameter 7 of 1"));
}

TEST(ProveLoadPlan, T6_AChangeOfDtypeIsDeclared) {
  LoadPlan plan = two_halves();
  plan.sources[0].spec.dtype = DType::kF32;
  EXPECT_THAT(refusal(plan), HasSubstr("copy from float32 to bfloat16"));
  plan.pieces[0].op = PieceOp::kCast;
  EXPECT_EQ(refusal(plan), "");
  plan.pieces[1].op = PieceOp::kCast;
  EXPECT_THAT(refusal(plan), HasSubstr("cast from bfloat16 to bfloat16"));
  plan = two_halves();
  plan.sources[0].spec.dtype = DType::kI32;
  plan.pieces[0].op = PieceOp::kCast;
  EXPECT_THAT(refusal(plan), HasSubstr("cast from int32"));
  plan.sources[0].spec.dtype = DType::kF64;
  EXPECT_THAT(refusal(plan), HasSubstr("cast from float64"));
  plan = two_halves();
  plan.parameters[0].dtype = DType::kF4;
  EXPECT_THAT(refusal(plan), HasSubstr("declare the packed form"));
}

TEST(ProveLoadPlan, NamesCountsAndRanksAreChecked) {
  LoadPlan plan = two_halves();
  plan.parameters.push_back(plan.parameters[0]);
  EXPECT_THAT(refusal(plan), HasSubstr("parameter \"p\" stands twice"));
  plan = two_halves();
  plan.sources[1].spec.name = "a";
  EXPECT_THAT(refusal(plan), HasSubstr("the plan names it twice"));
  plan = two_halves();
  plan.sources[1].aliases = {"a"};
  EXPECT_THAT(refusal(plan), HasSubstr("the plan names it twice"));
  plan = two_halves();
  plan.parameters[0].name = "";
  EXPECT_NE(refusal(plan), "");
  plan = two_halves();
  plan.parameters[0].shape = {INT64_MAX, INT64_MAX};
  EXPECT_NE(refusal(plan), "");
  plan = two_halves();
  plan.tp_rank = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("tp_rank 1 of tp_size 1"));
  plan = two_halves();
  plan.derived = {{{"p"}, "amax", "s"}};
  EXPECT_THAT(refusal(plan), HasSubstr("derived value \"s\""));
  EXPECT_THAT(refusal(LoadPlan()), HasSubstr("at least one parameter"));
}

TEST(ProveLoadPlan, ZeroSizeTensorsNeedNoElementsButMayBeWanted) {
  LoadPlan plan = two_halves();
  plan.parameters.push_back({"empty", DType::kBF16, {0, 4}});
  EXPECT_EQ(refusal(plan), "");
  plan.sources.push_back({{"e", DType::kBF16, {0, 4}}, {}});
  plan.pieces.push_back({2, 1, {0, {{0, 4}, {4, 1}}}, {0, {{0, 4}, {4, 1}}}, PieceOp::kCopy, ""});
  EXPECT_EQ(refusal(plan), "");
  plan.pieces[2].source_view.offset = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("reaches outside"));
}

// A parameter too finely strided to be proved within the ceiling is refused, at no cost.
TEST(ProveLoadPlan, TheProofItselfHasACeiling) {
  constexpr int64_t kHalf = 1ll << 40;
  LoadPlan plan = two_halves();
  plan.parameters[0].shape = {2 * kHalf};
  plan.sources[0].spec.shape = plan.sources[1].spec.shape = {kHalf};
  for (int i : {0, 1}) {
    plan.pieces[i].source_view = {0, {{kHalf, 1}}};
    plan.pieces[i].target_view = {i, {{kHalf, 2}}};
  }
  EXPECT_THAT(refusal(plan), HasSubstr("too finely strided"));
  // The same in runs of 2^20 elements is proved by runs.
  for (int i : {0, 1}) {
    plan.pieces[i].source_view = {0, {{kHalf >> 20, 1 << 20}, {1 << 20, 1}}};
    plan.pieces[i].target_view = {int64_t{i} << 20, {{kHalf >> 20, 2 << 20}, {1 << 20, 1}}};
  }
  EXPECT_EQ(refusal(plan), "");
}

// Random plans against counting element by element.
TEST(ProveLoadPlan, T4_AgreesWithCountingElements) {
  base::Prng prng(42);
  int tiled = 0;
  const auto pick = [&](int64_t from, int64_t to) { return prng.between(from, to); };
  for (int round = 0; round < 20000; ++round) {
    const int64_t count = pick(1, 24);
    std::vector<int> hits(static_cast<size_t>(count), 0);
    LoadPlan plan;
    plan.parameters = {{"p", DType::kU8, {count}}};
    plan.sources = {{{"s", DType::kU8, {count}}, {}}};
    plan.pieces = {{0, 0, {0, {{0, 1}}}, {0, {{0, 1}}}, PieceOp::kCopy, ""}};
    for (int64_t piece = pick(1, 3); piece > 0; --piece) {
      View view{pick(0, 2), {}};
      int64_t last = view.offset;
      for (int64_t dim = pick(0, 3); dim > 0; --dim) {
        view.dims.push_back({pick(1, 4), pick(1, 6)});
        last += (view.dims.back().extent - 1) * view.dims.back().stride;
      }
      if (last >= count) {
        continue;
      }
      for (const int64_t at : model::elements(view)) {
        ++hits[static_cast<size_t>(at)];
      }
      plan.paddings.push_back({0, view});
    }
    for (int64_t at = 0; at < count; ++at) {  // Half of the rounds have their gaps filled.
      if (round % 2 == 0 && hits[static_cast<size_t>(at)] == 0) {
        ++hits[static_cast<size_t>(at)];
        plan.paddings.push_back({0, {at, {}}});
      }
    }
    const bool once = std::count(hits.begin(), hits.end(), 1) == count;
    tiled += once ? 1 : 0;
    ASSERT_EQ(prove_load_plan(plan).ok(), once) << load_plan_to_json(plan);
  }
  EXPECT_GT(tiled, 1000);
}

}  // namespace
}  // namespace changeover
