// make_load_plan as its user meets it: files, refusals, a model file of one's own.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "model/model_fixture.h"
#include "model/shard.h"

namespace changeover {
namespace {

using model::fixture_cases;
using model::rank_of;
using ::testing::HasSubstr;

class MakeLoadPlan : public ::testing::Test {
 protected:
  MakeLoadPlan()
      : folder_(std::filesystem::temp_directory_path() /
                ("changeover_model_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~MakeLoadPlan() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  Result<LoadPlan> make(const PlanOptions& options) {
    write("config.json", config_.dump());
    return make_load_plan(folder_, options);
  }
  std::string refusal(int32_t size = 1) {
    const auto plan = make(rank_of(0, size));
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    return plan.status().message();
  }

  std::filesystem::path folder_;
  nlohmann::json config_ = fixture_cases("llama")[3].config;  // 12 heads, 3 KV heads
};

TEST_F(MakeLoadPlan, FromAFolderOrTheFileItself) {
  const auto folder = make(rank_of(0, 3));
  const auto file = make_load_plan(folder_ / "config.json", rank_of(0, 3));
  ASSERT_TRUE(folder.ok() && file.ok()) << folder.status().to_string();
  EXPECT_EQ(*folder, *file);
  EXPECT_EQ(folder->architecture, "LlamaForCausalLM");
}

TEST_F(MakeLoadPlan, AMissingKeyIsNamed) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size",
                          "num_attention_heads", "architectures"}) {
    const nlohmann::json before = config_;
    config_.erase(key);
    EXPECT_THAT(refusal(), HasSubstr(std::string("config.json has no key \"") + key + "\""));
    config_ = before;
  }
  config_.erase("dtype");
  EXPECT_THAT(refusal(), HasSubstr("config.json has no key \"dtype\" (or \"torch_dtype\")"));
  PlanOptions options = rank_of(0, 1);
  options.dtype = DType::kF16;
  EXPECT_EQ(make(options)->parameters[0].dtype, DType::kF16);
  config_["torch_dtype"] = "float32";  // What the config says goes first.
  EXPECT_EQ(make(options)->parameters[0].dtype, DType::kF32);
}

TEST_F(MakeLoadPlan, AnUnknownArchitectureListsTheKnown) {
  config_["architectures"] = {"PuzzleForCausalLM"};
  EXPECT_THAT(refusal(), HasSubstr("\"PuzzleForCausalLM\" is not known; known are "
                                   "LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
                                   "OlmoeForCausalLM, Qwen2ForCausalLM, Qwen2MoeForCausalLM, "
                                   "Qwen3ForCausalLM, Qwen3MoeForCausalLM;"));
  config_["architectures"] = {"LlamaForCausalLM", "Other"};
  EXPECT_THAT(refusal(), HasSubstr("an array of one string"));
}

TEST_F(MakeLoadPlan, CountsThatTpDoesNotDivideNameKeyAndBothNumbers) {
  config_["num_attention_heads"] = 9;
  config_["head_dim"] = 64;
  EXPECT_THAT(refusal(2), HasSubstr("part q: tp_size 2 does not divide num_attention_heads = 9; "
                                    "choose a tp_size of 1, 3, 9"));
  config_["num_attention_heads"] = 12;
  EXPECT_THAT(refusal(2), HasSubstr("part k: tp_size 2 does not divide num_key_value_heads = 3; "
                                    "choose a tp_size of 1, 3 or a multiple of 3"));
  config_["intermediate_size"] = 83;
  EXPECT_THAT(refusal(3), HasSubstr("tp_size 3 does not divide intermediate_size = 83; choose a "
                                    "tp_size of 1, 83"));
}

TEST_F(MakeLoadPlan, ValuesThatMakeNoSenseAreRefused) {
  const nlohmann::json before = config_;
  const auto with = [&](const char* key, nlohmann::json value) {
    config_ = before;
    config_[key] = std::move(value);
    return refusal();
  };
  EXPECT_THAT(with("hidden_size", 120.0), HasSubstr("should be an integer"));
  EXPECT_THAT(with("hidden_size", "120"), HasSubstr("should be an integer, is the string"));
  EXPECT_THAT(with("hidden_size", -120), HasSubstr("a dimension is not negative"));
  EXPECT_THAT(with("hidden_size", INT64_MAX), HasSubstr("embed_tokens"));
  EXPECT_THAT(with("num_hidden_layers", -1), HasSubstr("runs from 0 to -1"));
  EXPECT_THAT(with("num_hidden_layers", 1'000'000'000), HasSubstr("count up at most 65536"));
  EXPECT_THAT(with("num_attention_heads", 0), HasSubstr("num_attention_heads"));
  EXPECT_THAT(with("num_key_value_heads", 0), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(with("tie_word_embeddings", 1), HasSubstr("should be true or false"));
  EXPECT_THAT(with("dtype", "bf16"), HasSubstr("no dtype is called so"));
  EXPECT_THAT(with("dtype", 16), HasSubstr("no dtype is called so"));
}

TEST_F(MakeLoadPlan, OptionsAreChecked) {
  for (const auto& [rank, size] : {std::pair{0, 0}, {1, 1}, {-1, 2}, {0, 65537}}) {
    EXPECT_THAT(make(rank_of(rank, size)).status().message(), HasSubstr("tp_rank"));
  }
  PlanOptions options = rank_of(0, 1);
  options.vocab_multiple = 0;
  EXPECT_THAT(make(options).status().message(), HasSubstr("vocab_multiple 0"));
  options = rank_of(0, 1);
  options.add_prefix = "language_model";  // The plan's names lack it: nothing could ever match.
  EXPECT_THAT(make(options).status().message(), HasSubstr("can never match"));
}

TEST_F(MakeLoadPlan, BrokenFilesAreNamed) {
  EXPECT_THAT(make_load_plan(folder_ / "nowhere", rank_of(0, 1)).status().message(),
              HasSubstr("nowhere"));
  write("config.json", "{\"architectures\": [");
  EXPECT_THAT(make_load_plan(folder_, rank_of(0, 1)).status().message(), HasSubstr("config.json"));
  write("config.json", "[]");
  EXPECT_THAT(make_load_plan(folder_, rank_of(0, 1)).status().message(),
              HasSubstr("no key \"architectures\""));
  write("config.json", std::string((4 << 20) + 1, ' '));
  EXPECT_THAT(make_load_plan(folder_, rank_of(0, 1)).status().message(), HasSubstr("larger than"));
}

// A new model is a new file: here one whose engine interleaves gate and up rows, and casts.
TEST_F(MakeLoadPlan, AModelFileOfOnesOwn) {
  config_ = {{"architectures", {"MineForCausalLM"}}, {"dtype", "bfloat16"}, {"n", 4}};
  PlanOptions options = rank_of(1, 2);
  options.model_file = write("mine.json", R"({
    "format": 1, "architectures": ["MineForCausalLM"],
    "require": [{"that": "n % 2 == 0", "message": "config.json: n should be even"}],
    "groups": [{"parameters": [
      {"name": "gate_up", "role": "column", "concat": 1, "flatten": 0, "parts": [
        {"part": "gate", "source": "gate", "source_dtype": "float32", "op": "cast",
         "shape": ["n", 3], "view": [{"split": {"dim": 0, "outer": "n", "inner": 1}}]},
        {"part": "up", "source": "up", "shape": ["n", 3],
         "view": [{"split": {"dim": 0, "outer": "n", "inner": 1}}]}]}]}]})");
  const auto plan = make(options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->pieces[0].op, PieceOp::kCast);
  const auto held =
      model::interpret(*plan, {{"gate", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
                               {"up", {20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}}});
  EXPECT_THAT(plan->parameters[0].shape, ::testing::ElementsAre(4, 3));
  EXPECT_THAT(held.at("gate_up"),
              ::testing::ElementsAre(6, 7, 8, 26, 27, 28, 9, 10, 11, 29, 30, 31));
  config_["n"] = 3;
  EXPECT_THAT(make(options).status().message(), HasSubstr("n should be even"));
}

// Rule S3: whatever shapes its parts have, a model file is refused or planned.
TEST_F(MakeLoadPlan, S3_PartsWithoutTheDimensionTheyAreJoinedAt) {
  config_ = {{"architectures", {"A"}}, {"dtype", "bfloat16"}};
  PlanOptions options = rank_of(0, 1);
  const auto plan_of = [&](const std::string& parameter) {
    options.model_file = write("odd.json", R"({"format": 1, "architectures": ["A"],
        "groups": [{"parameters": [)" + parameter +
                                               "]}]}");
    return make(options);
  };
  const auto part = [](const char* name, const char* shape) {
    return fmt::format(R"({{"part": "{0}", "source": "{0}", "shape": {1}}})", name, shape);
  };
  const auto joined = [&](const std::string& parts, int concat) {
    return fmt::format(R"({{"name": "p", "role": "replicate", "concat": {}, "parts": [{}]}})",
                       concat, parts);
  };
  EXPECT_THAT(plan_of(joined(part("a", "[]") + "," + part("b", "[4]"), 0)).status().message(),
              HasSubstr("part b has 1 dimensions, another 0"));
  EXPECT_THAT(plan_of(joined(part("a", "[4]") + "," + part("b", "[4]"), 1)).status().message(),
              HasSubstr("concat is 1"));
  const auto lone = plan_of(joined(part("a", "[4]"), 1));
  ASSERT_TRUE(lone.ok()) << lone.status().to_string();
  EXPECT_THAT(lone->parameters[0].shape, ::testing::ElementsAre(4));
}

// Rule S2: 260 bytes of model file that ask for 65,536 x 65,536 names.
TEST_F(MakeLoadPlan, S2_WorkAndMemoryOfAModelFileHaveCeilings) {
  config_ = {{"architectures", {"A"}}, {"dtype", "bfloat16"}};
  PlanOptions options = rank_of(1, 2);
  options.model_file = write("many.json", R"({"format": 1, "architectures": ["A"], "groups": [
      {"for": {"i": 65536}, "prefix": "l.{i}.", "parameters": [
        {"name": "w", "role": "expert", "concat": 1, "parts": [
          {"part": "w", "source": "{e}.w", "for": {"e": 65536}, "shape": [1, 1],
           "split": {"dim": 1, "pad": true}}]}]}]})");
  const auto plan = make(options);
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("more than 524288 sources"));
}

TEST(ModelFile, RefusalsNameThePlace) {
  struct Case {
    const char* parameter;
    const char* message;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {R"({"name": "w", "shape": [1]})", "\"role\" is missing"},
           {R"({"name": "w", "role": "diagonal", "shape": [1]})", "no role is called"},
           {R"({"name": "w", "role": "column"})", "\"shape\" is missing"},
           {R"({"name": "w", "role": "column", "shape": ["a +"]})", "expression \"a +\""},
           {R"({"name": "w", "role": "column", "shape": [true]})", "an expression"},
           {R"({"name": "w{layer}", "role": "column", "shape": [1]})", "variable \"layer\""},
           {R"({"name": "w{", "role": "column", "shape": [1]})", "variable \"\""},
           {R"({"name": "w*", "role": "column", "shape": [1]})", "stray"},
           {R"({"name": "", "role": "column", "shape": [1]})", "a name pattern has"},
           {R"({"name": "w", "role": "column", "shape": [1], "extra": 1})", "unknown key"},
           {R"({"name": "w", "role": "column", "parts": []})", "\"parts\" is empty"},
           {R"({"name": "w", "role": "column", "shape": [1], "op": "move"})", "no op is called"},
           {R"({"name": "w", "role": "vocab", "shape": [1], "split": {}})", "does not go with"},
           {R"({"name": "w", "role": "expert", "shape": [1], "split": {}})", "dim of 1 or more"},
           {R"({"name": "w", "role": "column", "shape": [1], "for": {"e": 2}})", "role expert"},
           {R"({"name": "w", "role": "column", "shape": [1], "for": {}})", "one variable"},
           {R"({"name": "w", "role": "column", "shape": [1],
                "split": {"pad": true, "replicate": true}})",
            "exclude each other"},
           {R"({"name": "w", "role": "column", "shape": [1], "view": [{"turn": {}}]})",
            "no step is called"},
           {R"({"name": "w", "role": "column", "shape": [1],
                "view": [{"merge": {"dim": 0, "step": 1}}]})",
            "a key of another step"},
           {R"({"name": "w", "role": "column", "shape": [1],
                "view": [{"take": {"dim": 0}}]})",
            "\"index\" is missing"}}) {
    const std::string text =
        std::string(R"({"format": 1, "architectures": ["A"], "groups": [{"parameters": [)") +
        bad.parameter + "]}]}";
    const auto file = model::ModelFile::parse(text);
    EXPECT_THAT(file.status().message(), HasSubstr(bad.message)) << bad.parameter;
    EXPECT_THAT(file.status().message(), HasSubstr("groups[0]: parameters[0]")) << bad.parameter;
  }
  EXPECT_THAT(model::ModelFile::parse("{}").status().message(), HasSubstr("\"format\" is missing"));
  EXPECT_EQ(model::ModelFile::parse("{").status().code(), Code::kCorrupt);
}

TEST(Share, UnitsAreDealtOutWholeReplicatedOrPadded) {
  model::ShareRequest request{
      .extent = 6, .unit = 2, .tp_rank = 5, .tp_size = 6, .count_text = "n"};
  EXPECT_FALSE(model::share_of(request).ok());
  request.replicate = true;  // 3 units over 6 ranks: rank 5 holds the last.
  EXPECT_EQ(model::share_of(request)->start, 4);
  request.replicate = false;
  request.pad = true;
  EXPECT_EQ(model::share_of(request)->filled, 0);
  EXPECT_EQ(model::share_of(request)->extent, 2);
  request.extent = 5;  // The last unit is half a unit.
  request.tp_rank = 2;
  EXPECT_EQ(model::share_of(request)->filled, 1);
  request.unit = INT64_MAX;
  EXPECT_FALSE(model::share_of(request).ok());
  request.unit = 0;
  EXPECT_FALSE(model::share_of(request).ok());
  EXPECT_EQ(model::vocabulary_unit(64, 4), 16);
  EXPECT_EQ(model::vocabulary_unit(64, 3), 64);
}

}  // namespace
}  // namespace changeover
