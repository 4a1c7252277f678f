// Engines whose ranks hold different experts, whole updates: cold load as the reference on every
// rank, not on rank 0 alone (rules T4-T6, T15; cases B12, B15, N1).
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/moe_kit.h"
#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ExpertPlacement::Kind;

ExpertPlacement in_turns(int32_t redundant = 0) {
  ExpertPlacement placement;
  placement.kind = Kind::kRoundRobin;
  placement.redundant = redundant;
  return placement;
}

// The ranks of one engine, and their publisher.
class Engine {
 public:
  Engine(const MoeModel& model, EngineLayout layout, const std::string& road, Mode mode)
      : model_(model), layout_(std::move(layout)) {
    publisher_ = open_publisher(publisher_options(road));
    const int ranks = *rank_count(layout_.shape);
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<PlannedRank>(model_.plan(layout_, rank),
                                                     publisher_->endpoint(), rank, ranks, mode));
    }
  }

  std::vector<std::unique_ptr<PlannedRank>>& ranks() { return ranks_; }
  PlannedRank& rank(size_t index) { return *ranks_[index]; }
  Publisher& publisher() { return *publisher_; }
  UpdateReport publish(const MoeModel::Weights& weights, int64_t version,
                       uint64_t bucket = 1 << 20) {
    const auto source = weights.source();
    const auto report = publisher_->publish(
        *source, publish_options(version, static_cast<uint32_t>(ranks_.size()), bucket));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : UpdateReport();
  }
  // An update that begins before the publisher has heard of the new plan loses the rank that says
  // hello again with it: as after every lost connection, it is tried again.
  UpdateReport publish_after_move(const MoeModel::Weights& weights, int64_t version) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    for (;;) {
      UpdateReport report = publish(weights, version);
      const bool lost = report.status.message().find("connection ended") != std::string::npos ||
                        report.status.message().find("connected anew") != std::string::npos;
      if (report.status.ok() || !lost || std::chrono::steady_clock::now() > until) {
        return report;
      }
    }
  }
  // Every rank serves the version, byte for byte as a cold load.
  void expect_all(const MoeModel::Weights& weights, int64_t version) {
    for (auto& rank : ranks_) {
      EXPECT_TRUE(rank->serves(version));
      EXPECT_EQ(rank->live(), model_.cold_digests(weights, rank->plan()));
    }
  }

 private:
  const MoeModel& model_;
  EngineLayout layout_;
  std::unique_ptr<Publisher> publisher_;
  std::vector<std::unique_ptr<PlannedRank>> ranks_;
};

class ExpertsOverEveryWay : public OverEveryWay {};

// Two copies of the rest over two ranks each; experts in turns over two groups of two ranks, the
// first two of them twice. Bucket sizes of one tensor, one byte over the largest, and everything;
// three rounds each.
TEST_P(ExpertsOverEveryWay, T4_CaseB12_CaseB15_EveryRankHoldsItsExperts) {
  const MoeModel model;
  Engine engine(model, {{.tp_size = 2, .dp_size = 2, .ep_size = 2}, in_turns(2)}, road(), mode());
  int64_t version = 0;
  const uint64_t largest = model.weights(0).largest();
  for (const uint64_t bucket : {uint64_t{1}, largest + 1, uint64_t{1} << 30}) {
    for (int round = 0; round < 3; ++round) {
      const auto weights = model.weights(++version);
      const UpdateReport report = engine.publish(weights, version, bucket);
      ASSERT_TRUE(report.status.ok()) << report.status.to_string();
      engine.expect_all(weights, version);
      for (const RankReport& rank : report.ranks) {
        EXPECT_EQ(rank.pieces_landed, rank.pieces_expected);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ways, ExpertsOverEveryWay, every_way(), way_name);

TEST(Experts, T4_CaseB15_EveryLayoutOfAnEngineAndEitherFormOfTheSources) {
  const MoeModel model;
  for (const EngineLayout& layout : std::initializer_list<EngineLayout>{
           {{.tp_size = 4, .ep_size = 2}, in_turns()},
           {{.tp_size = 4, .ep_size = 4}, {}},
           {{.tp_size = 2, .dp_size = 2, .ep_size = 4}, {}, "fused"},
           {{.tp_size = 2, .dp_size = 2, .ep_size = 1}, {}, "fused"},
           {{.dp_size = 3, .ep_size = 3}, in_turns(), "fused"},
           {{.dp_size = 2, .ep_size = 2}, table_of({{7, 0, 0, 3}, {1, 2, 4, 5, 6, 3}}), "fused"},
           {{.dp_size = 2, .ep_size = 2}, table_of({{7, 0, 0, 3}, {1, 2, 4, 5, 6, 3}})}}) {
    SCOPED_TRACE(testing::Message() << layout.source_form << ", ep " << layout.shape.ep_size);
    Engine engine(model, layout, "shm", Mode::kJournal);
    for (int64_t version = 1; version <= 3; ++version) {
      const auto weights = model.weights(version, layout.source_form);
      const UpdateReport report = engine.publish(weights, version, version == 1 ? 1 : 1 << 20);
      ASSERT_TRUE(report.status.ok()) << report.status.to_string();
      engine.expect_all(weights, version);
    }
  }
}

TEST(Experts, T4_T5_AMissingExpertShardIsRefusedByName) {
  const MoeModel model;
  Engine engine(model, {{.tp_size = 4, .ep_size = 2}, {}}, "shm", Mode::kJournal);
  const auto first = model.weights(1);
  ASSERT_TRUE(engine.publish(first, 1).status.ok());
  auto second = model.weights(2);
  for (size_t i = 0; i < second.specs.size(); ++i) {
    if (second.specs[i].name == "model.layers.1.mlp.experts.5.up_proj.weight") {
      second.specs.erase(second.specs.begin() + static_cast<long>(i));
      second.bytes.erase(second.bytes.begin() + static_cast<long>(i));
    }
  }
  const UpdateReport report = engine.publish(second, 2);
  EXPECT_THAT(report.status.message(),
              HasSubstr("model.layers.1.mlp.experts.w13_weight: part up missing, comes from "
                        "\"model.layers.1.mlp.experts.5.up_proj.weight\""));
  engine.expect_all(first, 1);  // Also the group that holds experts 0 to 3.
  const auto third = model.weights(3);
  ASSERT_TRUE(engine.publish(third, 3).status.ok());
  engine.expect_all(third, 3);
}

// Case N1: four experts, filled with 110, 120, 130 and 140, plus a version's own number.
constexpr int kFill[] = {110, 120, 130, 140};
MoeModel::Weights filled(const MoeModel& model, int64_t version) {
  auto weights = model.weights(version);
  for (size_t i = 0; i < weights.specs.size(); ++i) {
    const size_t at = weights.specs[i].name.find(".experts.");
    if (at != std::string::npos) {
      const auto value = kFill[weights.specs[i].name[at + 9] - '0'] + version;
      std::fill(weights.bytes[i].begin(), weights.bytes[i].end(), static_cast<std::byte>(value));
    }
  }
  return weights;
}

TEST(MovingExperts, T15_CaseN1_EveryReplicaReadsItsOwnExpert) {
  const MoeModel model(4);
  Engine engine(model, {{}, table_of({{0, 2, 1, 3, 1}})}, "shm", Mode::kJournal);
  ASSERT_TRUE(engine.publish(filled(model, 1), 1).status.ok());
  EXPECT_TRUE(engine.rank(0).serves(1));
  for (const char* buffer : {"w13_weight", "w2_weight"}) {
    EXPECT_THAT(engine.rank(0).slots(buffer), ElementsAre(111, 131, 121, 141, 121));
  }
}

class MovingExpertsOverEveryWay : public OverEveryWay {};

TEST_P(MovingExpertsOverEveryWay, T15_CaseN1_AMoveInFlightHoldsUpdatesOffAndANewPlanFollowsIt) {
  const MoeModel model(4);
  const EngineLayout before{{}, table_of({{0, 2, 1, 3}}), "per_expert", 7};
  Engine engine(model, before, road(), mode());
  PlannedRank& rank = engine.rank(0);
  ASSERT_TRUE(engine.publish(filled(model, 1), 1).status.ok());
  ASSERT_TRUE(rank.serves(1));
  EXPECT_THAT(rank.slots("w2_weight"), ElementsAre(111, 131, 121, 141));

  auto move = rank->begin_move("experts of layer 1");
  ASSERT_TRUE(move.ok()) << move.status().to_string();
  EXPECT_THAT(rank->begin_move("more").status().message(), HasSubstr("experts of layer 1"));
  EXPECT_THAT(rank->begin_reload(std::nullopt).status().message(), HasSubstr("rule T15"));
  const UpdateReport refused = engine.publish(filled(model, 2), 2);
  EXPECT_THAT(refused.status.message(), HasSubstr("a move is in flight here: experts of layer 1"));
  EXPECT_TRUE(rank.serves(1));

  // The engine has moved them; what says so must be newer and for the same parameters.
  EngineLayout after{{}, table_of({{3, 1, 0, 2}}), "per_expert", 7};
  EXPECT_THAT((*move)->finish(model.plan(after, 0)).message(),
              HasSubstr("generation 7, this rank follows generation 7"));
  after.generation = 8;
  const EngineLayout larger{{}, table_of({{3, 1, 0, 2, 2}}), "per_expert", 8};
  EXPECT_EQ((*move)->finish(model.plan(larger, 0)).code(), Code::kInvalidArgument);
  EXPECT_THAT(engine.publish(filled(model, 2), 2).status.message(), HasSubstr("in flight"));
  ASSERT_TRUE((*move)->finish(model.plan(after, 0)).ok());
  move->reset();

  for (int64_t version = 3; version <= 5; ++version) {
    const UpdateReport report = engine.publish_after_move(filled(model, version), version);
    ASSERT_TRUE(report.status.ok()) << report.status.to_string();
    EXPECT_TRUE(rank.serves(version));
    const int v = static_cast<int>(version);
    for (const char* buffer : {"w13_weight", "w2_weight"}) {
      EXPECT_THAT(rank.slots(buffer), ElementsAre(140 + v, 120 + v, 110 + v, 130 + v));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ways, MovingExpertsOverEveryWay, every_way(), way_name);

// A move that gave up: nothing has moved, and the next update comes at once.
TEST(MovingExperts, T15_CaseN1_AMoveThatIsDroppedLeavesThePlanAsItWas) {
  const MoeModel model(4);
  Engine engine(model, {{}, table_of({{0, 2, 1, 3}})}, "shm", Mode::kJournal);
  PlannedRank& rank = engine.rank(0);
  { ASSERT_TRUE(rank->begin_move("experts").ok()); }
  ASSERT_TRUE(engine.publish(filled(model, 1), 1).status.ok());
  EXPECT_TRUE(rank.serves(1));
  EXPECT_THAT(rank.slots("w2_weight"), ElementsAre(111, 131, 121, 141));
}

// Both ranks must follow the new layout before the engine takes part again.
TEST(MovingExperts, T15_CaseN1_AnEngineHalfMovedTakesPartInNoUpdate) {
  const MoeModel model(4);
  EngineLayout layout{{.tp_size = 2, .ep_size = 2}, table_of({{0, 2}, {1, 3}}), "per_expert", 1};
  Engine engine(model, layout, "shm", Mode::kJournal);
  ASSERT_TRUE(engine.publish(filled(model, 1), 1).status.ok());
  std::vector<std::unique_ptr<Subscriber::Move>> moves;
  for (auto& rank : engine.ranks()) {
    auto move = (*rank)->begin_move("experts");
    ASSERT_TRUE(move.ok()) << move.status().to_string();
    moves.push_back(std::move(move).take());
  }
  layout.placement = table_of({{3, 1}, {2, 0}});
  layout.generation = 2;
  ASSERT_TRUE(moves[0]->finish(model.plan(layout, 0)).ok());
  // Rank 0 has said hello again; rank 1, with the older plan, is the one that lacks.
  const auto until = std::chrono::steady_clock::now() + 10s;
  std::string missing;
  while (missing.find("missing: a/1") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << missing;
    missing = engine.publisher().wait_for_ranks(2, 0s).message();
  }
  ASSERT_TRUE(moves[1]->finish(model.plan(layout, 1)).ok());
  const UpdateReport report = engine.publish_after_move(filled(model, 2), 2);
  ASSERT_TRUE(report.status.ok()) << report.status.to_string();
  EXPECT_TRUE(engine.rank(0).serves(2) && engine.rank(1).serves(2));
  EXPECT_THAT(engine.rank(0).slots("w2_weight"), ElementsAre(142, 122));
  EXPECT_THAT(engine.rank(1).slots("w2_weight"), ElementsAre(132, 112));
}

// A move cannot begin under an update, which would write by the old plan.
TEST(MovingExperts, T15_CaseN1_NoMoveBeginsWhileAnUpdateIsOpen) {
  const MoeModel model(4);
  auto publisher = open_publisher(publisher_options("shm"));
  std::vector<std::string> answers;
  PlannedRank* self = nullptr;
  SubscriberOptions options;
  options.on_progress = [&](uint64_t) {
    answers.push_back((*self)->begin_move("experts").status().message());
  };
  PlannedRank rank(model.plan({}, 0), publisher->endpoint(), 0, 1, Mode::kJournal, options);
  self = &rank;
  const auto weights = filled(model, 1);
  ASSERT_TRUE(publisher->publish(*weights.source(), publish_options(1, 1))->status.ok());
  ASSERT_FALSE(answers.empty());
  for (const std::string& answer : answers) {
    EXPECT_THAT(answer, HasSubstr("an update is open here"));
  }
  EXPECT_TRUE(rank.serves(1));
}

}  // namespace
}  // namespace changeover::e2e
