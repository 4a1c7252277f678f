#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"

namespace changeover {
namespace {

using ::testing::HasSubstr;

// Every field holds something.
LoadPlan full_plan() {
  LoadPlan plan;
  plan.generation = 7;
  plan.tp_rank = 1;
  plan.tp_size = 3;
  plan.experts = {1, 4, 2, 5};
  plan.architecture = "Tiny\"\\\n";
  plan.parameters = {{"p.\xc3\xa9", DType::kBF16, {2, 3}}};
  plan.sources = {{{"s", DType::kF32, {2, 2}}, {"t", "u"}}};
  plan.pieces = {{0, 0, {0, {{2, 2}, {2, 1}}}, {0, {{2, 3}, {2, 1}}}, PieceOp::kCast, "q"}};
  plan.paddings = {{0, {2, {{2, 3}}}}};
  plan.ignorable = {"x.*", "y"};
  plan.drop_segments = {"_orig_mod"};
  plan.optional_segments = {"base_layer"};
  plan.strip_prefixes = {"base_model.model"};
  plan.add_prefix = "";
  return plan;
}

TEST(LoadPlanJson, EveryFieldSurvivesTheRoundTrip) {
  const LoadPlan plan = full_plan();
  ASSERT_EQ(prove_load_plan(plan).message(), "");
  const std::string json = load_plan_to_json(plan);
  const auto back = parse_load_plan(json);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, plan);
  EXPECT_EQ(load_plan_to_json(*back), json);
}

TEST(LoadPlanJson, CanonicalBytes) {
  EXPECT_EQ(
      load_plan_to_json(full_plan()),
      "{\"format\":1,\"generation\":7,\"tp_rank\":1,\"tp_size\":3,\"experts\":{\"ep_rank\":1,"
      "\"ep_size\":4,\"tp_rank\":2,\"tp_size\":5},\"architecture\":"
      "\"Tiny\\\"\\\\\\u000a\",\"parameters\":[{\"name\":\"p.\xc3\xa9\",\"dtype\":\"bfloat16\","
      "\"shape\":[2,3]}],\"sources\":[{\"name\":\"s\",\"dtype\":\"float32\",\"shape\":[2,2],"
      "\"aliases\":[\"t\",\"u\"]}],\"pieces\":[{\"source\":0,\"parameter\":0,\"part\":\"q\","
      "\"op\":\"cast\",\"source_view\":{\"offset\":0,\"dims\":[[2,2],[2,1]]},\"target_view\":"
      "{\"offset\":0,\"dims\":[[2,3],[2,1]]}}],\"paddings\":[{\"parameter\":0,\"view\":"
      "{\"offset\":2,\"dims\":[[2,3]]}}],\"derived\":[],\"ignorable\":[\"x.*\",\"y\"],"
      "\"drop_segments\":[\"_orig_mod\"],\"optional_segments\":[\"base_layer\"],\"strip_prefixes\":"
      "[\"base_model.model\"],"
      "\"add_prefix\":\"\"}");
}

// A plan is named by its digest: an engine whose layout moved has another one, its generation too.
TEST(LoadPlanJson, T15_TheDigestNamesThePlanAndItsGeneration) {
  const LoadPlan plan = full_plan();
  EXPECT_EQ(load_plan_digest(plan), load_plan_digest(full_plan()));
  std::vector<LoadPlan> others(10, plan);
  others[0].generation = 8;
  others[1].tp_rank = 2;
  others[2].parameters[0].dtype = DType::kF16;
  others[3].sources[0].aliases.pop_back();
  others[4].pieces[0].source_view.offset = 1;
  others[5].paddings.clear();
  others[6].strip_prefixes.clear();
  others[7].ignorable.pop_back();
  others[9].optional_segments.clear();
  others[8].experts.ep_rank = 2;
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(load_plan_digest(others[i]), load_plan_digest(plan)) << i;
  }
}

TEST(LoadPlanJson, T15_OneSourceMayHaveSeveralDestinations) {
  LoadPlan plan = full_plan();
  plan.parameters.push_back({"copy", DType::kBF16, {2, 2}});
  plan.pieces.push_back({0, 1, {0, {{4, 1}}}, {0, {{4, 1}}}, PieceOp::kCast, ""});
  const auto back = parse_load_plan(load_plan_to_json(plan));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, plan);
}

TEST(LoadPlanJson, AnEngineMayLeaveOutWhatIsEmpty) {
  const auto plan = parse_load_plan(
      R"({"format": 1, "tp_rank": 0, "tp_size": 1,
          "parameters": [{"name": "p", "dtype": "float32", "shape": []}],
          "sources": [{"name": "s", "dtype": "float32", "shape": []}],
          "pieces": [{"source": 0, "parameter": 0, "source_view": {"offset": 0, "dims": []},
                      "target_view": {"offset": 0, "dims": []}}]})");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->pieces[0].op, PieceOp::kCopy);
}

TEST(LoadPlanJson, RefusalsNameThePlace) {
  const std::string good = load_plan_to_json(full_plan());
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {"\"format\":1", "\"format\":2", "2 is outside 1 .. 1"},
           {"\"format\":1", "\"format\":1.0", "should be an integer"},
           {"\"generation\":7", "\"generation\":-1", "-1 is outside"},
           {"\"tp_rank\":1", "\"tp_rank\":3", "tp_rank 3 of tp_size 3"},
           {"\"tp_size\":3", "\"tp_size\":65537", "65537 is outside"},
           {"\"tp_size\":3,", "", "the key \"tp_size\" is missing"},
           {"\"tp_size\":3,", "\"tp_size\":3,\"tp\":3,", "unknown key \"tp\""},
           {"\"tp_size\":3,", "\"tp_size\":3,\"tp_size\":3,", "tp_size"},
           {"\"ep_rank\":1", "\"ep_rank\":4", "experts of group 4 of 4"},
           {"\"ep_rank\":1,", "", "the key \"ep_rank\" is missing"},
           {"\"dtype\":\"bfloat16\"", "\"dtype\":\"bf16\"", "parameters[0]: \"dtype\": no dtype"},
           {"\"shape\":[2,3]", "\"shape\":[2,3.0]", "parameters[0]"},
           {"\"shape\":[2,3]", "\"shape\":[2,-3]", "\"p."},
           {"\"op\":\"cast\"", "\"op\":\"move\"", "pieces[0]: no op is called \"move\""},
           {"\"op\":\"cast\"", "\"op\":\"copy\"", "copy from float32 to bfloat16"},
           {"[[2,2],[2,1]]", "[[2,2],[2]]", "pieces[0]: source_view"},
           {"[[2,2],[2,1]]", "[[2,2],[2,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1]]",
            "9 elements, at most 8"},
           {"[[2,3],[2,1]]", "[[2,3],[3,1]]", "differ in their extents"},
           {"\"derived\":[]", "\"derived\":[{\"inputs\":[\"p\"],\"op\":\"a\",\"output\":\"s\"}]",
            "derived value \"s\""},
           {"\"source\":0", "\"source\":4294967296", "outside 0 .. 4294967295"},
           {"\"paddings\":[",
            "\"paddings\":[{\"parameter\":0,\"view\":{\"offset\":0,\"dims\":[]}},",
            "both fill element [0, 0]"}}) {
    std::string json = good;
    json.replace(json.find(bad.from), std::string_view(bad.from).size(), bad.to);
    const auto plan = parse_load_plan(json);
    EXPECT_THAT(plan.status().message(), HasSubstr(bad.message)) << bad.to;
  }
  EXPECT_EQ(parse_load_plan("").status().code(), Code::kCorrupt);
  EXPECT_FALSE(parse_load_plan("[]").ok());
  EXPECT_EQ(parse_load_plan(good + " x").status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace changeover
