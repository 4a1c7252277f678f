// Sources that lie otherwise than the engine's parameters: interleaved, transposed, tiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.h"

namespace changeover::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A plan of a model file with these parameters, for a config with these keys.
Result<LoadPlan> plan_of_file(const std::string& parameters, nlohmann::json config,
                              const PlanOptions& options = {}) {
  config["architectures"] = {"A"};
  config["dtype"] = "bfloat16";
  const std::string text =
      R"({"format": 1, "architectures": ["A"], "groups": [{"parameters": [)" + parameters + "]}]}";
  const std::pair<std::string_view, std::string_view> file("own.json", text);
  return plan_from_text(config.dump(), {&file, 1}, options);
}

std::map<std::string, Numbers> held_of(const std::string& parameters, const nlohmann::json& config,
                                       const std::map<std::string, Numbers>& sources,
                                       const PlanOptions& options = {}) {
  const auto plan = plan_of_file(parameters, config, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? interpret(*plan, sources) : std::map<std::string, Numbers>();
}

// 8 query and 2 KV heads of 2 rows each, as training fuses them: q0-7 k0-1 v0-1 of KV head 0, then
// q8-15 k2-3 v2-3 of head 1, one column. Training slices these 24 rows over its 4 ranks.
struct InterleavedQkv {
  const char* parameters = R"(
    {"name": "qkv", "role": "column", "parts": [
      {"part": "q", "source": "linear_qkv", "shape": ["(heads + 2 * kv_heads) * dim", 1],
       "view": [{"split": {"dim": 0, "outer": "kv_heads", "inner": "(heads / kv_heads + 2) * dim"}},
                {"slice": {"dim": 1, "stop": "heads / kv_heads * dim"}}, {"merge": {"dim": 0}}],
       "split": {"count": "heads", "unit": "dim"}},
      {"part": "k", "source": "linear_qkv", "shape": ["(heads + 2 * kv_heads) * dim", 1],
       "view": [{"split": {"dim": 0, "outer": "kv_heads", "inner": "(heads / kv_heads + 2) * dim"}},
                {"slice": {"dim": 1, "start": "heads / kv_heads * dim",
                           "stop": "(heads / kv_heads + 1) * dim"}}, {"merge": {"dim": 0}}],
       "split": {"count": "kv_heads", "unit": "dim", "replicate": true}},
      {"part": "v", "source": "linear_qkv", "shape": ["(heads + 2 * kv_heads) * dim", 1],
       "view": [{"split": {"dim": 0, "outer": "kv_heads", "inner": "(heads / kv_heads + 2) * dim"}},
                {"slice": {"dim": 1, "start": "(heads / kv_heads + 1) * dim"}},
                {"merge": {"dim": 0}}],
       "split": {"count": "kv_heads", "unit": "dim", "replicate": true}}]})";
  nlohmann::json config = {{"heads", 8}, {"kv_heads", 2}, {"dim", 2}};
  // Rows are told apart by value: q 100.., k 200.., v 300...
  std::map<std::string, Numbers> sources;

  InterleavedQkv() {
    const std::vector<Numbers> training = {{100, 101, 102, 103, 104, 105},
                                           {106, 107, 200, 201, 300, 301},
                                           {108, 109, 110, 111, 112, 113},
                                           {114, 115, 202, 203, 302, 303}};
    for (const Numbers& rank : training) {
      sources["linear_qkv"].insert(sources["linear_qkv"].end(), rank.begin(), rank.end());
    }
  }
};

TEST(InterleavedQkv, CaseB11_SplitIntoTheHeadsOfEachRankAlsoWhereRanksOutnumberKvHeads) {
  const InterleavedQkv qkv;
  const std::vector<Numbers> expected = {{100, 101, 102, 103, 200, 201, 300, 301},
                                         {104, 105, 106, 107, 200, 201, 300, 301},
                                         {108, 109, 110, 111, 202, 203, 302, 303},
                                         {112, 113, 114, 115, 202, 203, 302, 303}};
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(held_of(qkv.parameters, qkv.config, qkv.sources, rank_of(rank, 4)).at("qkv"),
              expected[static_cast<size_t>(rank)])
        << rank;
  }
}

TEST(InterleavedQkv, CaseB11_WholeAndHalvedAndFinerThanAGroup) {
  const InterleavedQkv qkv;
  EXPECT_THAT(held_of(qkv.parameters, qkv.config, qkv.sources).at("qkv"),
              ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114,
                          115, 200, 201, 202, 203, 300, 301, 302, 303));
  EXPECT_THAT(held_of(qkv.parameters, qkv.config, qkv.sources, rank_of(1, 2)).at("qkv"),
              ElementsAre(108, 109, 110, 111, 112, 113, 114, 115, 202, 203, 302, 303));
  for (int32_t rank = 0; rank < 8; ++rank) {
    const int64_t kv = rank < 4 ? 0 : 2;
    EXPECT_THAT(
        held_of(qkv.parameters, qkv.config, qkv.sources, rank_of(rank, 8)).at("qkv"),
        ElementsAre(100 + 2 * rank, 101 + 2 * rank, 200 + kv, 201 + kv, 300 + kv, 301 + kv));
  }
  EXPECT_THAT(plan_of_file(qkv.parameters, qkv.config, rank_of(0, 3)).status().message(),
              HasSubstr("does not divide heads = 8"));
}

// A rank's share that begins and ends within groups: three groups of two over two ranks.
TEST(InterleavedQkv, CaseB11_AShareMayBeginInTheMiddleOfAGroup) {
  const char* parameters = R"({"name": "w", "role": "column", "source": "s", "shape": [9, 2],
    "view": [{"split": {"dim": 0, "outer": 3, "inner": 3}}, {"slice": {"dim": 1, "stop": 2}},
             {"merge": {"dim": 0}}]})";
  Numbers source(18);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<int64_t>(10 * (i / 2 + 1) + i % 2);
  }
  EXPECT_THAT(held_of(parameters, {}, {{"s", source}}, rank_of(0, 2)).at("w"),
              ElementsAre(10, 11, 20, 21, 40, 41));
  EXPECT_THAT(held_of(parameters, {}, {{"s", source}}, rank_of(1, 2)).at("w"),
              ElementsAre(50, 51, 70, 71, 80, 81));
  // What it is not cut along lies in segments just the same.
  const char* whole = R"({"name": "w", "role": "replicate", "source": "s", "shape": [9, 2],
    "view": [{"split": {"dim": 0, "outer": 3, "inner": 3}}, {"slice": {"dim": 1, "stop": 2}},
             {"merge": {"dim": 0}}]})";
  EXPECT_THAT(held_of(whole, {}, {{"s", source}}).at("w"),
              ElementsAre(10, 11, 20, 21, 40, 41, 50, 51, 70, 71, 80, 81));
  const char* early = R"({"name": "w", "role": "column", "source": "s", "shape": [9, 2],
    "view": [{"split": {"dim": 0, "outer": 3, "inner": 3}}, {"slice": {"dim": 1, "stop": 2}},
             {"merge": {"dim": 0}}, {"transpose": [1, 0]}]})";
  EXPECT_THAT(plan_of_file(early, {}).status().message(), HasSubstr("do not lie back to back"));
}

// Two experts, both dimensions 2: nothing but the declaration says how the matrices lie.
TEST(SquareExperts, CaseB13_TheLayoutIsDeclaredNeverInferred) {
  const auto parameters = [](const std::string& layout) {
    return R"({"name": "w2", "role": "expert", "source": "down", "shape": [2, "n", "n"])" + layout +
           R"(, "split": {"dim": 2}})";
  };
  const std::map<std::string, Numbers> sources = {{"down", {1, 2, 3, 4, 5, 6, 7, 8}}};
  const nlohmann::json config = {{"n", 2}};
  EXPECT_THAT(held_of(parameters(R"(, "layout": "in_out")"), config, sources).at("w2"),
              ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
  EXPECT_THAT(held_of(parameters(R"(, "layout": "out_in")"), config, sources).at("w2"),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(
      held_of(parameters(R"(, "layout": "in_out")"), config, sources, rank_of(1, 2)).at("w2"),
      ElementsAre(3, 4, 7, 8));
  EXPECT_THAT(plan_of_file(parameters(""), config).status().message(),
              HasSubstr("\"w2\": shape: a source of 2 matrices of 2 x 2 has no \"layout\": declare "
                        "out_in or in_out, extents cannot tell"));
  EXPECT_THAT(plan_of_file(parameters(R"(, "layout": "rows")"), config).status().message(),
              HasSubstr("out_in or in_out"));
}

TEST(SquareExperts, CaseB13_InterleavedAndHalvedRowsGiveOneGateAndUp) {
  const auto parameters = [](const char* gate, const char* up) {
    return std::string(R"({"name": "w13", "role": "expert", "concat": 1, "parts": [)") +
           R"({"part": "gate", "source": "s", "shape": [1, 4, 1], "layout": "out_in",
               "view": [{"slice": {"dim": 1, )" +
           gate + R"(}}], "split": {"dim": 1}},
              {"part": "up", "source": "s", "shape": [1, 4, 1], "layout": "out_in",
               "view": [{"slice": {"dim": 1, )" +
           up + R"(}}], "split": {"dim": 1}}]})";
  };
  const std::string interleaved = parameters(R"("step": 2)", R"("start": 1, "step": 2)");
  const std::string halves = parameters(R"("stop": 2)", R"("start": 2)");
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto one = held_of(interleaved, {}, {{"s", {10, 20, 11, 21}}}, rank_of(rank, 2));
    const auto other = held_of(halves, {}, {{"s", {10, 11, 20, 21}}}, rank_of(rank, 2));
    EXPECT_THAT(one.at("w13"), ElementsAre(10 + rank, 20 + rank));
    EXPECT_EQ(one, other);
  }
}

}  // namespace
}  // namespace changeover::model
