#include <thread>

#include <changeover/admin.h>
#include <changeover/parameter_store.h>
#include <changeover/reference_rank.h>
#include <changeover/verify.h>

#include "os/entropy.h"
#include "reference/fake_testing.h"
#include "reference/rank_parts.h"
#include "reference/toy_llama_testing.h"

namespace changeover::reference {
namespace {

using std::chrono::seconds;

constexpr const char* kDown = "model.layers.1.mlp.down_proj.weight";

TEST_F(ToyTest, VerifyFolder_TheSameWeightsAreTheSame) {
  write_toy(folder_ / "a", 1);
  write_toy(folder_ / "b", 1);
  for (int32_t rank = 0; rank < 3; ++rank) {
    PlanOptions options;
    options.tp_rank = rank;
    options.tp_size = 3;
    const auto report = verify_folder(folder_ / "b", folder_ / "a", options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->same());
    EXPECT_GT(report->parameters_compared, 10u);
  }
}

TEST_F(ToyTest, VerifyFolder_OneByteIsFoundAndNamedWithBothDigests) {
  write_toy(folder_ / "a", 1);
  write_toy(folder_ / "b", 1, kDown);
  const auto report = verify_folder(folder_ / "b", folder_ / "a");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->same());
  ASSERT_EQ(report->differences.size(), 1u);
  const VerifyDifference& difference = report->differences[0];
  EXPECT_NE(difference.parameter.find("down_proj"), std::string::npos);
  EXPECT_NE(difference.held, difference.expected);
  const std::string json = verify_report_to_json(*report);
  EXPECT_NE(json.find("\"ok\":false"), std::string::npos);
  EXPECT_NE(json.find(difference.held->to_text()), std::string::npos);
  EXPECT_NE(json.find(difference.expected->to_text()), std::string::npos);
}

TEST_F(ToyTest, VerifyFolder_WhatCannotBeComparedIsAnError) {
  write_toy(folder_ / "a", 1);
  EXPECT_FALSE(verify_folder(folder_ / "nowhere", folder_ / "a").ok());
  EXPECT_FALSE(verify_folder(folder_ / "a", folder_ / "nowhere").ok());
}

// Rank 1 of 3 with the cold-loaded weights of a checkpoint, behind a real admin socket.
class VerifyRankTest : public ToyTest {
 protected:
  void serve(const std::filesystem::path& held) {
    ReferenceRankOptions options;
    options.subscriber.endpoint = *Endpoint::parse("shm:test");
    options.subscriber.engine = "a";
    options.subscriber.rank = 1;
    options.subscriber.engine_size = 3;
    options.plan.tp_rank = 1;
    options.plan.tp_size = 3;
    options.step_socket = "changeover.test." + os::draw_incarnation()->to_text();
    options.admin_path = admin_ = (folder_ / "admin").string();
    RankParts parts;
    parts.plan = *make_load_plan(held, options.plan);
    parts.store = cold_load(parts.plan, **Checkpoint::open(held)).take();
    store_ = parts.store.get();
    auto subscriber = std::make_unique<FakeSubscriber>(options.subscriber);
    subscriber_ = subscriber.get();
    parts.subscriber = std::move(subscriber);
    rank_ = make_reference_rank(options, std::move(parts)).take();
    thread_ = std::thread([this] { EXPECT_TRUE(rank_->run().ok()); });
    ASSERT_TRUE(eventually([this] {
      return admin_request(admin_, R"({"format":1,"request":"status"})", seconds(10)).ok();
    }));
  }
  ~VerifyRankTest() override {
    if (thread_.joinable()) {
      rank_->request_stop();
      thread_.join();
    }
  }

  std::string admin_;
  ParameterStore* store_ = nullptr;
  FakeSubscriber* subscriber_ = nullptr;
  std::unique_ptr<ReferenceRank> rank_;
  std::thread thread_;
};

TEST_F(VerifyRankTest, ARankIsHeldAgainstAColdLoad) {
  write_toy(folder_ / "v2", 2);
  serve(folder_ / "v2");
  subscriber_->commit({0, 2});
  const auto same = verify_rank("unix:" + admin_, folder_ / "v2");
  ASSERT_TRUE(same.ok()) << same.status().to_string();
  EXPECT_TRUE(same->same());
  EXPECT_EQ(same->tp_rank, 1);
  EXPECT_EQ(same->version, (VersionStamp{0, 2}));
  EXPECT_NE(same->subject.find("a/1 at unix:"), std::string::npos);

  subscriber_->fence_as("idle", "waiting for release");
  const LiveParameter& last = store_->parameters().back();
  last.data[0] ^= std::byte{0x80};
  const auto differs = verify_rank(admin_, folder_ / "v2");
  ASSERT_TRUE(differs.ok()) << differs.status().to_string();
  EXPECT_TRUE(differs->fenced);
  ASSERT_EQ(differs->differences.size(), 1u);
  EXPECT_EQ(differs->differences[0].parameter, last.spec.name);
}

TEST_F(VerifyRankTest, AnotherModelIsAnErrorThatNamesBothPlans) {
  write_toy(folder_ / "v2", 2);
  serve(folder_ / "v2");
  subscriber_->commit({0, 2});
  std::string config = kToyConfig;
  config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 1");
  std::filesystem::create_directories(folder_ / "other");
  std::ofstream(folder_ / "other" / "config.json") << config;
  const auto report = verify_rank(admin_, folder_ / "other");
  EXPECT_EQ(report.status().code(), Code::kInvalidArgument);
  EXPECT_NE(report.status().message().find(load_plan_digest(rank_->plan()).to_text()),
            std::string::npos);
}

TEST_F(VerifyRankTest, ARankThatReceivesIsAskedLater) {
  write_toy(folder_ / "v2", 2);
  serve(folder_ / "v2");
  subscriber_->fence_as("receiving", "receiving version 3");
  EXPECT_EQ(verify_rank(admin_, folder_ / "v2").status().code(), Code::kTryLater);
  EXPECT_EQ(verify_rank(folder_.string() + "/none", folder_ / "v2").status().code(),
            Code::kUnavailable);
}

}  // namespace
}  // namespace changeover::reference
