// The families with experts against two references: the names and shapes that transformers writes,
// and what each rank of an engine holds, cut with numpy.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/moe_fixture.h"

namespace changeover::model {
namespace {

class MoeFamily : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, MoeFamily, ::testing::Values("qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MoeFamily, T4_SourcesAreWhatTransformersWrites) {
  const MoeFixture fixture(GetParam());
  const auto plan = plan_of(fixture.config(), rank_of(0, 1));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::map<std::string, TensorSpec> sources;
  for (const Source& source : plan->sources) {
    sources[source.spec.name] = source.spec;
  }
  EXPECT_EQ(sources, fixture.tensors("checkpoint"));
}

TEST_P(MoeFamily, T4_EveryRankHoldsTheExpertsOfTheEngine) {
  const MoeFixture fixture(GetParam());
  const auto checkpoint = fixture.checkpoint();
  int checked = 0;
  for (const auto& engine : fixture.document.at("engines")) {
    const int32_t tp = engine.at("tp");
    if (engine.at("ep") != 1) {
      continue;
    }
    for (int32_t rank = 0; rank < tp; ++rank) {
      const auto plan = plan_of(fixture.config(), rank_of(rank, tp));
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
      const auto held = interpret(*plan, checkpoint);
      for (const auto& [name, digest] : engine.at("ranks")[rank].items()) {
        EXPECT_EQ(digest_of(held.at(name)), digest) << name << " of rank " << rank;
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 7);
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
  EXPECT_THAT(plan_of(config, rank_of(0, 1)).status().message(), ::testing::HasSubstr("num_local"));
}

}  // namespace
}  // namespace changeover::model
