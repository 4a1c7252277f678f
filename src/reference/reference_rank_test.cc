// A whole reference rank over a stand-in for its subscriber: steps, admin, start and end.
#include <filesystem>
#include <thread>

#include <changeover/admin.h>
#include <changeover/reference_rank.h>

#include <gtest/gtest.h>

#include "base/json.h"
#include "os/entropy.h"
#include "reference/digests_reply.h"
#include "reference/fake_testing.h"
#include "reference/rank_parts.h"

namespace changeover::reference {
namespace {

using std::chrono::seconds;

class ReferenceRankTest : public testing::Test {
 protected:
  ReferenceRankTest() {
    std::string pattern = testing::TempDir() + "changeover-rank-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.subscriber.endpoint = *Endpoint::parse("shm:test");
    options_.subscriber.engine = "a";
    options_.subscriber.rank = 0;
    options_.step_socket = "changeover.test." + os::draw_incarnation()->to_text();
    options_.step_interval = std::chrono::milliseconds(1);
    options_.admin_path = (folder_ / "admin").string();
  }
  ~ReferenceRankTest() override {
    end();
    std::filesystem::remove_all(folder_);
  }
  void make() {
    RankParts parts;
    parts.plan.architecture = "Test";
    parts.plan.parameters = {{"w", DType::kU8, {100'000}}, {"b", DType::kBF16, {8}}};
    auto store = std::make_unique<FakeStore>(parts.plan.parameters);
    auto subscriber = std::make_unique<FakeSubscriber>(options_.subscriber);
    store_ = store.get();
    subscriber_ = subscriber.get();
    parts.store = std::move(store);
    parts.subscriber = std::move(subscriber);
    auto rank = make_reference_rank(options_, std::move(parts));
    ASSERT_TRUE(rank.ok()) << rank.status().to_string();
    rank_ = std::move(rank).take();
  }
  void run() {
    thread_ = std::thread([this] { result_ = rank_->run(); });
    ASSERT_TRUE(
        eventually([this] { return ask("status").find("\"ok\":true") != std::string::npos; }));
  }
  void end() {
    if (thread_.joinable()) {
      rank_->request_stop();
      thread_.join();
    }
  }
  std::string ask(const std::string& request) const {
    const auto reply = admin_request(options_.admin_path,
                                     R"({"format":1,"request":")" + request + "\"}", seconds(10));
    return reply.ok() ? *reply : reply.status().to_string();
  }
  bool runs() {
    return eventually([&, before = rank_->steps().run] { return rank_->steps().run > before + 2; });
  }

  std::filesystem::path folder_;
  ReferenceRankOptions options_;
  FakeStore* store_ = nullptr;
  FakeSubscriber* subscriber_ = nullptr;
  std::unique_ptr<ReferenceRank> rank_;
  std::thread thread_;
  Status result_;
};

TEST_F(ReferenceRankTest, StepsAsSoonAsItHoldsAVersionAndEndsCleanly) {
  make();
  run();
  EXPECT_TRUE(eventually(
      [&] { return rank_->steps().waiting_for.find("version none") != std::string::npos; }));
  EXPECT_TRUE(eventually([&] { return subscriber_->started.load(); }));
  subscriber_->commit({0, 1});
  EXPECT_TRUE(runs());
  EXPECT_EQ(ask("stop"), R"({"format":1,"ok":true,"request":"stop","engine":"a","rank":0})");
  thread_.join();
  EXPECT_TRUE(result_.ok()) << result_.to_string();
  EXPECT_TRUE(subscriber_->stopped);
  EXPECT_FALSE(std::filesystem::exists(options_.admin_path)) << "S4";
}

TEST_F(ReferenceRankTest, V6_BytesThatChangeUnderAVersionAreSeen) {
  make();
  run();
  subscriber_->commit({0, 1});
  EXPECT_TRUE(runs());
  EXPECT_EQ(rank_->steps().mixed, 0u);
  subscriber_->fence_as("receiving", "a writer that keeps the version's name");
  store_->fill(std::byte{7});
  subscriber_->commit({0, 1});
  EXPECT_TRUE(eventually([&] { return rank_->steps().mixed > 0; }));
}

// The guard is not kept over the whole model: an update comes between two parameters, and what is
// answered is of one version all the same.
TEST_F(ReferenceRankTest, T11_DigestsLetAnUpdateInAndAreOfOneVersion) {
  options_.step_interval = std::chrono::hours(1);
  make();
  subscriber_->commit({0, 1});  // Before the only step.
  run();
  ASSERT_TRUE(eventually([&] { return rank_->steps().run == 1; }));
  FakeFence& fence = static_cast<FakeFence&>(subscriber_->fence());
  ASSERT_TRUE(eventually([&] { return fence.guards() == 0; }));
  fence.after_next_guard([&] {
    subscriber_->fence_as("receiving", "receiving version 2");
    store_->fill(std::byte{2});
    subscriber_->commit({0, 2});
  });
  const auto held = parse_digests_reply(ask("digests"));
  ASSERT_TRUE(held.ok()) << held.status().to_string();
  EXPECT_EQ(held->version, (VersionStamp{0, 2}));
  const auto expected = live_digests(*store_);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(held->parameters.at(i).digest, expected[i]);
  }
}

TEST_F(ReferenceRankTest, DigestsAreOfTheBytesItHolds) {
  make();
  run();
  subscriber_->commit({0, 4});
  const auto served = parse_digests_reply(ask("digests"));
  ASSERT_TRUE(served.ok()) << served.status().to_string();
  EXPECT_EQ(served->version, (VersionStamp{0, 4}));
  EXPECT_FALSE(served->fenced);
  ASSERT_EQ(served->parameters.size(), 2u);
  subscriber_->fence_as("idle", "waiting for release");
  store_->fill(std::byte{1});
  const auto fenced = parse_digests_reply(ask("digests"));
  ASSERT_TRUE(fenced.ok());
  EXPECT_TRUE(fenced->fenced);
  EXPECT_EQ(fenced->fence_reason, "waiting for release");
  EXPECT_NE(fenced->parameters[0].digest, served->parameters[0].digest);
  for (const std::string phase : {"receiving", "received", "prepared"}) {
    subscriber_->fence_as(phase, "receiving version 5");
    EXPECT_EQ(parse_digests_reply(ask("digests")).status().code(), Code::kTryLater) << phase;
  }
  subscriber_->fence_as("in_doubt", "in doubt about version 5");
  EXPECT_TRUE(parse_digests_reply(ask("digests")).ok());
}

TEST_F(ReferenceRankTest, StatusStepsAndReportAreAnswered) {
  make();
  run();
  EXPECT_NE(ask("report").find("\"report\":null"), std::string::npos);
  subscriber_->commit({0, 4});
  EXPECT_TRUE(runs());
  for (const std::string request : {"status", "steps", "report"}) {
    const std::string reply = ask(request);
    const auto document = base::JsonDocument::parse(reply);
    ASSERT_TRUE(document.ok()) << reply;
    EXPECT_EQ(document->root().find("ok")->boolean(), true) << reply;
  }
  EXPECT_NE(ask("report").find("\"committed\""), std::string::npos) << ask("report");
  EXPECT_NE(ask("sing").find("\"ok\":false"), std::string::npos);
}

TEST_F(ReferenceRankTest, ASecondRankOnTheSameAdminPathIsRefused) {
  make();
  run();
  const auto first = std::move(rank_);
  make();
  const Status second = rank_->run();
  EXPECT_EQ(second.code(), Code::kUnavailable);
  EXPECT_NE(second.message().find("in use"), std::string::npos);
  first->request_stop();
  thread_.join();
}

TEST_F(ReferenceRankTest, AFileIsReceivedOnceThenStepsGoOn) {
  options_.subscriber.endpoint = *Endpoint::parse("file:/some/stream");
  make();
  run();
  EXPECT_TRUE(runs());
  EXPECT_FALSE(subscriber_->started) << "a file has no publisher to dial";
}

TEST_F(ReferenceRankTest, ABadFileEndsTheRankWithItsReason) {
  options_.subscriber.endpoint = *Endpoint::parse("file:/some/stream");
  make();
  subscriber_->receive_report.error = Status(Code::kCorrupt, "frame 2: rule W7");
  const Status result = rank_->run();
  EXPECT_EQ(result.code(), Code::kCorrupt);
  EXPECT_EQ(result.message(), "frame 2: rule W7");
}

TEST_F(ReferenceRankTest, AFileThatNeverComesDoesNotKeepTheRankFromStopping) {
  options_.subscriber.endpoint = *Endpoint::parse("file:/some/fifo");
  make();
  subscriber_->receive_blocks = true;
  run();
  EXPECT_TRUE(eventually(
      [&] { return parse_digests_reply(ask("digests")).status().code() == Code::kTryLater; }));
  end();
  EXPECT_TRUE(result_.ok()) << result_.to_string();
}

TEST_F(ReferenceRankTest, RankAndSizeAreCheckedFirst) {
  const auto why = [](const ReferenceRankOptions& options) {
    const auto rank = ReferenceRank::open(options);
    return rank.status().to_string();
  };
  options_.subscriber.rank = 3;
  options_.subscriber.engine_size = 3;
  EXPECT_NE(why(options_).find("rank 3 of an engine of 3"), std::string::npos);
  options_.subscriber.rank = 0;
  options_.subscriber.endpoint = *Endpoint::parse("file:/some/stream");
  EXPECT_NE(why(options_).find("--tp 1, not 3"), std::string::npos);
}

}  // namespace
}  // namespace changeover::reference
