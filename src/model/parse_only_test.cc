// The hard architectures: their files are parsed, every pattern, shape and expression resolves for
// real configs, and the plans they give are proved, though no engine serves from them yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"

namespace changeover::model {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, TensorSpec> sources_of(const LoadPlan& plan) {
  std::map<std::string, TensorSpec> sources;
  for (const Source& source : plan.sources) {
    sources[source.spec.name] = source.spec;
  }
  return sources;
}

const TensorSpec* parameter_of(const LoadPlan& plan, std::string_view name) {
  for (const TensorSpec& spec : plan.parameters) {
    if (spec.name == name) {
      return &spec;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return &plan.parameters.at(0);
}

// Names and shapes; which small tensors are float32 depends on who wrote the checkpoint.
void expect_same_shapes(std::map<std::string, TensorSpec> sources,
                        const std::map<std::string, TensorSpec>& expected) {
  for (auto& [name, spec] : sources) {
    const auto found = expected.find(name);
    EXPECT_NE(found, expected.end()) << name;
    if (found != expected.end()) {
      EXPECT_EQ(spec.shape, found->second.shape) << name;
    }
  }
  for (const auto& [name, spec] : expected) {
    EXPECT_TRUE(sources.contains(name)) << name;
  }
}

class ParseOnly : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, ParseOnly, ::testing::Values("deepseek_v3", "gpt_oss", "qwen3_next"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ParseOnly, SourcesAreWhatTransformersWrites) {
  for (FixtureCase fixture : fixture_cases(GetParam())) {
    fixture.config["num_nextn_predict_layers"] = 0;  // transformers leaves the MTP layers out.
    const auto plan = plan_of(fixture.config, rank_of(0, 1));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_same_shapes(sources_of(*plan), fixture.tensors);
  }
}

TEST_P(ParseOnly, T4_EveryRankIsTiled) {
  for (const FixtureCase& fixture : fixture_cases(GetParam())) {
    for (const int32_t size : {1, 2, 4}) {
      for (int32_t rank = 0; rank < size; ++rank) {
        const auto plan = plan_of(fixture.config, rank_of(rank, size));
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
        interpret(*plan, numbered(sources_of(*plan)));
      }
    }
  }
}

TEST_P(ParseOnly, MakeLoadPlanRefusesThemByName) {
  const FixtureCase fixture = fixture_cases(GetParam())[0];
  const auto plan = plan_from_text(fixture.config.dump(), embedded_model_files(), rank_of(0, 1));
  EXPECT_EQ(plan.status().code(), Code::kRefused);
  EXPECT_THAT(plan.status().message(), HasSubstr(std::string(fixture.config["architectures"][0])));
  EXPECT_THAT(plan.status().message(), HasSubstr("parse_only"));
}

TEST(GptOss, CaseB13_GateAndUpAreTakenApartAndTransposed) {
  const FixtureCase fixture = fixture_cases("gpt_oss")[0];  // E 5, H 64, I 96
  const auto plan = plan_of(fixture.config, rank_of(1, 2));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto full = numbered(fixture.tensors);
  const auto held = interpret(*plan, full);
  const Numbers& source = full.at("model.layers.1.mlp.experts.gate_up_proj");
  const Numbers& w13 = held.at("model.layers.1.mlp.experts.w13_weight");
  // 96 = 3 units of 32: rank 0 has two, rank 1 one and a unit of padding.
  EXPECT_THAT(parameter_of(*plan, "model.layers.1.mlp.experts.w13_weight")->shape,
              ElementsAre(5, 2 * 64, 64));
  for (int64_t e = 0; e < 5; ++e) {
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t h = 0; h < 64; ++h) {
        for (const int64_t up : {0, 1}) {
          const int64_t column = 2 * (64 + i) + up;
          const int64_t expected = i < 32 ? source[(e * 64 + h) * 192 + column] : kPaddingValue;
          ASSERT_EQ(w13[(e * 128 + up * 64 + i) * 64 + h], expected) << e << " " << i << " " << h;
        }
      }
    }
  }
}

TEST(GptOss, BlocksOf32AreDealtOutWholeAndPadded) {
  nlohmann::json config = fixture_cases("gpt_oss")[0].config;
  config.update({{"hidden_size", 2880},
                 {"intermediate_size", 2880},
                 {"num_local_experts", 2},
                 {"num_attention_heads", 64},
                 {"num_key_value_heads", 8},
                 {"head_dim", 64},
                 {"vocab_size", 201088},
                 {"num_hidden_layers", 1},
                 {"quantization_config", {{"quant_method", "mxfp4"}}}});
  for (const int32_t rank : {0, 3}) {
    const auto plan = plan_of(config, rank_of(rank, 4));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
    const std::string prefix = "model.layers.0.mlp.experts.";
    // 90 blocks over 4 ranks: 23, 23, 23, 21.
    EXPECT_THAT(parameter_of(*plan, prefix + "w13_weight")->shape, ElementsAre(2, 2 * 736, 1440));
    EXPECT_THAT(parameter_of(*plan, prefix + "w13_weight_scale")->shape,
                ElementsAre(2, 2 * 736, 90));
    EXPECT_THAT(parameter_of(*plan, prefix + "w2_weight")->shape, ElementsAre(2, 2880, 368));
    EXPECT_THAT(parameter_of(*plan, prefix + "w2_weight_scale")->shape, ElementsAre(2, 2880, 23));
    int64_t padded = 0;
    for (const Padding& padding : plan->paddings) {
      padded += plan->parameters[padding.parameter].name == prefix + "w2_weight_scale" ? 1 : 0;
    }
    EXPECT_EQ(padded, rank == 3 ? 1 : 0);
  }
}

nlohmann::json deepseek_config() {
  nlohmann::json config = fixture_cases("deepseek_v3")[0].config;
  config.update({{"hidden_size", 7168},
                 {"intermediate_size", 18432},
                 {"moe_intermediate_size", 2048},
                 {"num_hidden_layers", 61},
                 {"num_attention_heads", 128},
                 {"num_key_value_heads", 128},
                 {"n_routed_experts", 256},
                 {"n_shared_experts", 1},
                 {"first_k_dense_replace", 3},
                 {"q_lora_rank", 1536},
                 {"kv_lora_rank", 512},
                 {"qk_rope_head_dim", 64},
                 {"qk_nope_head_dim", 128},
                 {"v_head_dim", 128},
                 {"vocab_size", 129280},
                 {"num_nextn_predict_layers", 1},
                 {"moe_layer_freq", 1}});
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  return config;
}

TEST(DeepSeekV3, RealConfigWithBlockScalesAndMtp) {
  const auto plan = plan_of(deepseek_config(), rank_of(7, 8));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_TRUE(prove_load_plan(*plan).ok()) << prove_load_plan(*plan).to_string();
  // The whole checkpoint's count of tensors, as its index lists them.
  EXPECT_EQ(plan->sources.size(), 91991u);
  const std::string layer = "model.layers.60.";
  const auto shape = [&](const std::string& name) { return parameter_of(*plan, name)->shape; };
  EXPECT_THAT(shape(layer + "mlp.experts.w13_weight"), ElementsAre(256, 512, 7168));
  EXPECT_THAT(shape(layer + "mlp.experts.w13_weight_scale_inv"), ElementsAre(256, 4, 56));
  EXPECT_THAT(shape(layer + "mlp.experts.w2_weight_scale_inv"), ElementsAre(256, 56, 2));
  EXPECT_THAT(shape(layer + "self_attn.fused_qkv_a_proj.weight"), ElementsAre(2112, 7168));
  EXPECT_THAT(shape(layer + "self_attn.fused_qkv_a_proj.weight_scale_inv"), ElementsAre(17, 56));
  EXPECT_THAT(shape(layer + "self_attn.q_b_proj.weight"), ElementsAre(3072, 1536));
  EXPECT_THAT(shape("model.layers.61.eh_proj.weight"), ElementsAre(7168, 14336));
  EXPECT_EQ(parameter_of(*plan, layer + "mlp.experts.w2_weight")->dtype, DType::kF8E4M3FN);
  EXPECT_EQ(parameter_of(*plan, layer + "mlp.gate.e_score_correction_bias")->dtype, DType::kF32);
}

TEST(DeepSeekV3, AbsentQueryRankMeansAPlainQueryProjection) {
  const auto plan = plan_of(fixture_cases("deepseek_v3")[1].config, rank_of(0, 2));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::vector<std::string> names;
  for (const TensorSpec& spec : plan->parameters) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(names, Contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.0.self_attn.fused_qkv_a_proj.weight")));
}

TEST(Qwen3Next, LayerKindsComeFromTheListOrTheInterval) {
  nlohmann::json config = fixture_cases("qwen3_next")[0].config;
  const auto with_list = plan_of(config, rank_of(0, 2));
  config.erase("layer_types");
  config["full_attention_interval"] = 4;
  const auto with_interval = plan_of(config, rank_of(0, 2));
  ASSERT_TRUE(with_list.ok() && with_interval.ok()) << with_list.status().to_string();
  EXPECT_EQ(*with_list, *with_interval);
  // The convolution of rank 1: its q, k and v channels, each cut for itself.
  config["num_hidden_layers"] = 1;
  const auto plan = plan_of(config, rank_of(1, 2));
  ASSERT_TRUE(plan.ok());
  std::vector<int64_t> first_channels;
  for (const Piece& piece : plan->pieces) {
    if (plan->parameters[piece.parameter].name.ends_with("conv1d.weight")) {
      first_channels.push_back(piece.source_view.offset / 3);
    }
  }
  EXPECT_THAT(first_channels, ElementsAre(12, 24 + 12, 48 + 28));
}

TEST(EmbeddedFiles, AreTheFilesOfTheFolderAndSayWhatTheyAre) {
  EXPECT_EQ(embedded_model_files().size(), 10u);
  for (const auto& [name, text] : embedded_model_files()) {
    EXPECT_EQ(text, read_text(CHANGEOVER_SOURCE_DIR "/models/" + std::string(name)));
  }
  std::string listed;
  for (const ModelFileInfo& info : model_files()) {
    listed += info.architecture + (info.parse_only ? " (parse_only) " : " ");
  }
  EXPECT_EQ(listed,
            "DeepseekV3ForCausalLM (parse_only) GptOssForCausalLM (parse_only) LlamaForCausalLM "
            "MistralForCausalLM MixtralForCausalLM OlmoeForCausalLM Qwen2ForCausalLM "
            "Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM "
            "(parse_only) ");
}

}  // namespace
}  // namespace changeover::model
