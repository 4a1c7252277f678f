// The families with experts against two references: the names and shapes that transformers writes
// and holds, and what each rank of an engine holds, cut with numpy.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/moe_fixture.h"

namespace changeover::model {
namespace {

using ::testing::HasSubstr;

class MoeFamily : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, MoeFamily,
                         ::testing::Values("mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

PlanOptions in_form(const char* form, PlanOptions options = rank_of(0, 1)) {
  options.source_form = form;
  return options;
}

std::map<std::string, TensorSpec> sources_of(const LoadPlan& plan) {
  std::map<std::string, TensorSpec> sources;
  for (const Source& source : plan.sources) {
    sources[source.spec.name] = source.spec;
  }
  return sources;
}

TEST_P(MoeFamily, T4_SourcesAreWhatTransformersWritesAndHolds) {
  const MoeFixture fixture(GetParam());
  const auto saved = plan_of(fixture.config(), rank_of(0, 1));
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(sources_of(*saved), fixture.tensors("checkpoint"));
  const auto held = plan_of(fixture.config(), in_form("fused"));
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_EQ(sources_of(*held), fixture.tensors("state_dict"));
  EXPECT_EQ(saved->parameters, held->parameters);
  EXPECT_THAT(plan_of(fixture.config(), in_form("stacked")).status().message(),
              HasSubstr("source form \"stacked\": its model file knows per_expert, fused"));
}

// The test's own fusing agrees with that of transformers, so that both forms may feed the rest.
TEST_P(MoeFamily, FusedTensorsAreThoseOfTransformers) {
  const MoeFixture fixture(GetParam());
  const auto fused = fixture.state_dict();
  for (const auto& entry : fixture.document.at("state_dict")) {
    EXPECT_EQ(digest_of(fused.at(entry[0])), entry[2]) << entry[0];
  }
}

TEST_P(MoeFamily, T4_T15_CaseB15_EveryRankHoldsTheExpertsOfTheEngine) {
  const MoeFixture fixture(GetParam());
  const auto checkpoint = fixture.checkpoint();
  const auto state_dict = fixture.state_dict();
  int checked = 0;
  for (const auto& engine : fixture.document.at("engines")) {
    for (int32_t rank = 0; rank < static_cast<int32_t>(engine.at("ranks").size()); ++rank) {
      const PlanOptions options = fixture_rank(engine, rank);
      for (const char* form : {"per_expert", "fused"}) {
        SCOPED_TRACE(testing::Message() << form << ", rank " << rank << " of tp " << engine.at("tp")
                                        << " dp " << engine.at("dp") << " ep " << engine.at("ep")
                                        << " " << engine.at("placement"));
        const auto plan = plan_of(fixture.config(), in_form(form, options));
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        ASSERT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
        const auto held =
            interpret(*plan, std::string_view(form) == "fused" ? state_dict : checkpoint);
        for (const auto& [name, digest] : engine.at("ranks")[rank].items()) {
          EXPECT_EQ(digest_of(held.at(name)), digest) << name;
          ++checked;
        }
      }
    }
  }
  EXPECT_GE(checked, 200);
}

// What the experts of other ranks are made of arrives here too, and is dropped by name.
TEST_P(MoeFamily, T6_SourcesOfOtherRanksExpertsAreIgnorableOneByOne) {
  const MoeFixture fixture(GetParam());
  PlanOptions options;
  ASSERT_TRUE(place_rank({.tp_size = 2, .ep_size = 2}, 1, options).ok());
  const auto plan = plan_of(fixture.config(), options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::set<std::string> known(plan->ignorable.begin(), plan->ignorable.end());
  for (const Source& source : plan->sources) {
    EXPECT_TRUE(known.insert(source.spec.name).second) << source.spec.name;
  }
  for (const auto& [name, spec] : fixture.tensors("checkpoint")) {
    EXPECT_TRUE(known.contains(name)) << name;
    EXPECT_FALSE(known.contains(name + "x"));
  }
}

// Layer 0 of the fixture is dense by mlp_only_layers; the step says which of the others are.
TEST(Qwen3Moe, LayersAreSparseByStepUnlessNamedAsDense) {
  nlohmann::json config = MoeFixture("qwen3_moe").config();
  config["num_hidden_layers"] = 6;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  config["norm_topk_prob"] = true;  // About routing, not about weights.
  const auto plan = plan_of(config, rank_of(0, 1));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::set<std::string> sparse;
  std::set<std::string> dense;
  for (const TensorSpec& spec : plan->parameters) {
    const std::string layer = spec.name.substr(0, std::string("model.layers.0").size());
    if (spec.name.ends_with("experts.w13_weight")) {
      sparse.insert(layer);
    } else if (spec.name.ends_with("mlp.gate_up_proj.weight")) {
      dense.insert(layer);
    }
  }
  EXPECT_THAT(sparse, ::testing::ElementsAre("model.layers.1", "model.layers.5"));
  EXPECT_EQ(dense.size(), 4u);
  // As published on the hub, the count of experts has the older name.
  config["num_experts"] = config["num_local_experts"];
  config.erase("num_local_experts");
  EXPECT_EQ(plan_of(config, rank_of(0, 1))->parameters, plan->parameters);
  config["num_experts"] = 0;
  EXPECT_TRUE(plan_of(config, rank_of(0, 1)).ok());
  config.erase("num_experts");
  EXPECT_THAT(plan_of(config, rank_of(0, 1)).status().message(), HasSubstr("num_local_experts"));
}

TEST(Qwen3Moe, RoutersKeepADtypeOfTheirOwn) {
  const MoeFixture fixture("qwen3_moe");
  PlanOptions options = rank_of(0, 1);
  const std::string router = "model.layers.1.mlp.gate.weight";
  const auto piece_of_router = [&]() -> std::pair<Piece, LoadPlan> {
    const auto plan = plan_of(fixture.config(), options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
    for (const Piece& piece : plan->pieces) {
      if (plan->parameters[piece.parameter].name == router) {
        return {piece, *plan};
      }
    }
    return {};
  };
  options.dtypes = {{"model.layers.*.mlp.gate.weight", DType::kF32, std::nullopt}};
  auto [kept, kept_plan] = piece_of_router();
  EXPECT_EQ(kept.op, PieceOp::kCopy);
  EXPECT_EQ(kept_plan.sources[kept.source].spec.dtype, DType::kF32);
  EXPECT_EQ(kept_plan.parameters[kept.parameter].dtype, DType::kF32);
  options.dtypes = {{router, DType::kF32, DType::kBF16}};
  auto [cast, cast_plan] = piece_of_router();
  EXPECT_EQ(cast.op, PieceOp::kCast);
  EXPECT_EQ(cast_plan.sources[cast.source].spec.dtype, DType::kBF16);
  EXPECT_EQ(cast_plan.parameters[cast.parameter].dtype, DType::kF32);
  options.dtypes = {{"model.layers.*.mlp.router.weight", DType::kF32, std::nullopt}};
  EXPECT_THAT(plan_of(fixture.config(), options).status().message(),
              HasSubstr("no parameter is called so"));
}

TEST(Qwen3Moe, TheExpertsShareMustDivideTheirRows) {
  PlanOptions options;
  ASSERT_TRUE(place_rank({.tp_size = 1, .dp_size = 5}, 0, options).ok());
  EXPECT_THAT(plan_of(MoeFixture("qwen3_moe").config(), options).status().message(),
              HasSubstr("the experts' tp_size 5 does not divide moe_intermediate_size = 12"));
  options.experts->tp_rank = 5;
  EXPECT_THAT(plan_of(MoeFixture("qwen3_moe").config(), options).status().message(),
              HasSubstr("experts: rank 5 of 5"));
}

}  // namespace
}  // namespace changeover::model
