#include <changeover/experts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/moe_fixture.h"

namespace changeover {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ExpertPlacement::Kind;

ExpertSlots slots(const ExpertPlacement& placement, int64_t experts, int32_t groups) {
  const auto table = expert_slots(placement, 0, experts, groups);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return table.ok() ? *table : ExpertSlots();
}

TEST(ExpertPlacement, T15_GeneratorsDealOutEveryExpert) {
  const ExpertPlacement contiguous;
  EXPECT_THAT(slots(contiguous, 8, 2),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  // As many as fit, the remainder to the first groups.
  EXPECT_THAT(slots(contiguous, 8, 3),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6, 7)));
  const ExpertPlacement in_turns{.kind = Kind::kRoundRobin};
  EXPECT_THAT(slots(in_turns, 8, 3),
              ElementsAre(ElementsAre(0, 3, 6), ElementsAre(1, 4, 7), ElementsAre(2, 5)));
}

TEST(ExpertPlacement, T15_RedundantSlotsHoldTheFirstExpertsAgain) {
  EXPECT_THAT(slots({.redundant = 3}, 5, 2),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 0, 1, 2)));
  EXPECT_THAT(slots({.kind = Kind::kRoundRobin, .redundant = 2}, 4, 2),
              ElementsAre(ElementsAre(0, 2, 0), ElementsAre(1, 3, 1)));
}

TEST(ExpertPlacement, TablesMayDifferByLayer) {
  const auto placement = parse_expert_placement(
      R"({"format": 1, "slots": [[0, 2], [1, 3]], "layers": {"7": [[3], [2, 1, 0, 3]]}})");
  ASSERT_TRUE(placement.ok()) << placement.status().to_string();
  EXPECT_THAT(*expert_slots(*placement, 6, 4, 2),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(*expert_slots(*placement, 7, 4, 2),
              ElementsAre(ElementsAre(3), ElementsAre(2, 1, 0, 3)));
}

TEST(ExpertPlacement, EveryFieldSurvivesTheRoundTrip) {
  ExpertPlacement table{.kind = Kind::kTable};
  table.slots = {{0, 1}, {2}};
  table.layers[3] = {{2}, {1, 0, 2}};
  for (const ExpertPlacement& placement :
       {ExpertPlacement{.redundant = 5}, ExpertPlacement{.kind = Kind::kRoundRobin}, table}) {
    const std::string json = expert_placement_to_json(placement);
    const auto back = parse_expert_placement(json);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, placement) << json;
  }
}

TEST(ExpertPlacement, TablesThatMissOrInventAnExpertAreRefusedByName) {
  const auto refusal = [](ExpertSlots table, int32_t groups) {
    ExpertPlacement placement{.kind = Kind::kTable};
    placement.slots = std::move(table);
    return expert_slots(placement, 9, 4, groups).status().message();
  };
  EXPECT_THAT(refusal({{0, 1}, {2, 1}}, 2), HasSubstr("layer 9: expert 3 stands in no slot"));
  EXPECT_THAT(refusal({{0, 1}, {2, 4}}, 2), HasSubstr("a slot for expert 4, there are 0 .. 3"));
  EXPECT_THAT(refusal({{0, 1}, {2, -1}}, 2), HasSubstr("a slot for expert -1"));
  EXPECT_THAT(refusal({{0, 1, 2, 3}}, 2), HasSubstr("1 groups, ep_size is 2"));
  EXPECT_THAT(refusal({{0, 1, 2, 3}, {}}, 2), HasSubstr("group 1 has no slot"));
  EXPECT_THAT(expert_slots({}, 0, 4, 5).status().message(), HasSubstr("choose a smaller ep_size"));
  for (const auto& [experts, groups] : {std::pair<int64_t, int32_t>{0, 1}, {1, 0}, {1 << 20, 1}}) {
    EXPECT_FALSE(expert_slots({}, 0, experts, groups).ok());
  }
}

TEST(ExpertPlacement, BrokenTextsAreRefused) {
  for (const auto& [text, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"format": 1})", "give a \"generator\""},
           {R"({"format": 2, "slots": [[0]]})", "2 is outside"},
           {R"({"format": 1, "slots": [0]})", "an array of arrays"},
           {R"({"format": 1, "slots": [[0.5]]})", "group 0, slot 0"},
           {R"({"format": 1, "slots": [[65536]]})", "an integer of 0 .. 65535"},
           {R"({"format": 1, "layers": {"07": [[0]]}})", "\"07\" is no number of a layer"},
           {R"({"format": 1, "layers": [[0]]})", "an object of layer"},
           {R"({"format": 1, "generator": "random"})", "contiguous or round_robin"},
           {R"({"format": 1, "generator": "contiguous", "slots": [[0]]})", "without a table"},
           {R"({"format": 1, "slots": [[0]], "redundant": 1})", "give a \"generator\""},
           {R"({"format": 1, "slots": [[0]], "groups": 1})", "unknown key"}}) {
    EXPECT_THAT(parse_expert_placement(text).status().message(), HasSubstr(message)) << text;
  }
  EXPECT_EQ(parse_expert_placement("[").status().code(), Code::kCorrupt);
}

TEST(PlaceRank, RanksAreLaidOutTwice) {
  const auto place = [](EngineShape shape, int32_t rank) {
    PlanOptions options;
    const Status status = place_rank(shape, rank, options);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const ExpertShare& experts = *options.experts;
    return std::vector<int32_t>{options.tp_rank, options.tp_size, experts.ep_rank,
                                experts.ep_size, experts.tp_rank, experts.tp_size};
  };
  // Experts of half the ranks each, cut in two; the rest cut in four.
  EXPECT_THAT(place({.tp_size = 4, .ep_size = 2}, 3), ElementsAre(3, 4, 1, 2, 1, 2));
  // Two copies of the rest; whole experts, a quarter on each rank.
  EXPECT_THAT(place({.tp_size = 2, .dp_size = 2, .ep_size = 4}, 3), ElementsAre(1, 2, 3, 4, 0, 1));
  EXPECT_THAT(place({.tp_size = 2, .dp_size = 2, .ep_size = 2}, 2), ElementsAre(0, 2, 1, 2, 0, 2));
  // No groups: every expert is cut over all ranks, also of both copies.
  EXPECT_THAT(place({.tp_size = 1, .dp_size = 2}, 1), ElementsAre(0, 1, 0, 1, 1, 2));
  PlanOptions options;
  EXPECT_THAT(place_rank({.tp_size = 4, .ep_size = 3}, 0, options).message(),
              HasSubstr("ep 3 does not divide the engine's 4 ranks"));
  EXPECT_THAT(place_rank({.tp_size = 4}, 4, options).message(), HasSubstr("rank 4 of an engine"));
  EXPECT_FALSE(place_rank({.tp_size = 65536, .dp_size = 65536}, 0, options).ok());
  EXPECT_FALSE(place_rank({.tp_size = 0}, 0, options).ok());
}

// Case B15: expert e is filled with e. Global ids everywhere: the wrong answer is right on group 0.
TEST(ExpertPlacement, CaseB15_EveryGroupHoldsItsOwnExperts) {
  const model::MoeFixture fixture("qwen3_moe");
  std::map<std::string, model::Numbers> sources;
  for (const auto& [name, spec] : fixture.tensors("checkpoint")) {
    const size_t at = name.find(".experts.");
    const int64_t value = at == std::string::npos ? 100 : name[at + 9] - '0';
    sources[name].assign(static_cast<size_t>(model::product(spec.shape)), value);
  }
  const auto held = [&](int32_t ep, int32_t rank, ExpertPlacement placement) {
    PlanOptions options;
    EXPECT_TRUE(place_rank({.tp_size = ep, .ep_size = ep}, rank, options).ok());
    options.placement = std::move(placement);
    const auto plan = model::plan_of(fixture.config(), options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    const auto parameters = model::interpret(*plan, sources);
    std::vector<int64_t> experts;
    for (const char* buffer : {"w13_weight", "w2_weight"}) {
      const auto& numbers = parameters.at(std::string("model.layers.1.mlp.experts.") + buffer);
      std::vector<int64_t> filled;
      const size_t slot = 20 * 12 * (buffer[1] == '1' ? 2 : 1);
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (i % slot == 0) {
          filled.push_back(numbers[i]);
        }
        EXPECT_EQ(numbers[i], filled.back());
      }
      EXPECT_TRUE(experts.empty() || experts == filled);
      experts = filled;
    }
    return experts;
  };
  EXPECT_THAT(held(1, 0, {}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(held(2, 0, {}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(held(2, 1, {}), ElementsAre(4, 5, 6, 7));
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(held(4, rank, {.kind = Kind::kRoundRobin}), ElementsAre(rank, rank + 4));
  }
}

}  // namespace
}  // namespace changeover
