// Publisher, roads, subscribers and reference ranks together: an engine of three ranks changes over
// while it steps.
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include <changeover/admin.h>
#include <changeover/publisher.h>
#include <changeover/reference_rank.h>
#include <changeover/verify.h>

#include "os/entropy.h"
#include "reference/fake_testing.h"
#include "reference/toy_llama_testing.h"

namespace changeover::reference {
namespace {

using std::chrono::seconds;

constexpr int kRanks = 3;

class WholeEngineTest : public ToyTest,
                        public testing::WithParamInterface<std::tuple<const char*, Mode>> {
 protected:
  WholeEngineTest() {
    job_ = os::draw_incarnation()->to_text();
    for (int64_t version = 1; version <= 4; ++version) {
      write_toy(model(version), static_cast<uint64_t>(version));
    }
  }
  ~WholeEngineTest() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      end(rank);
    }
  }
  std::filesystem::path model(int64_t version) const {
    return folder_ / ("v" + std::to_string(version));
  }
  std::string admin(int rank) const { return folder_.string() + "/r" + std::to_string(rank); }

  void open_publisher() {
    PublisherOptions options;
    options.job = job_;
    options.endpoint = endpoint_;
    if (endpoint_ == Endpoint{}) {  // Else as before: its ranks dial there.
      options.endpoint = std::string(std::get<0>(GetParam())) == "tcp"
                             ? *Endpoint::parse("tcp:127.0.0.1:0")
                             : *Endpoint::parse("shm:test-" + job_.substr(0, 16));
    }
    auto publisher = Publisher::open(options);
    ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
    publisher_ = std::move(publisher).take();
    endpoint_ = publisher_->endpoint();
  }
  void start(int rank) {
    ReferenceRankOptions options;
    options.model = model(1);
    options.subscriber.endpoint = endpoint_;
    options.subscriber.job = job_;
    options.subscriber.engine = "a";
    options.subscriber.rank = rank;
    options.subscriber.engine_size = kRanks;
    options.subscriber.mode = std::get<1>(GetParam());
    options.step_interval = std::chrono::milliseconds(1);
    options.admin_path = admin(rank);
    auto opened = ReferenceRank::open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    ranks_[rank] = std::move(opened).take();
    threads_[rank] = std::thread([this, rank] {
      const Status status = ranks_[rank]->run();
      EXPECT_TRUE(status.ok()) << status.to_string();
    });
  }
  void end(int rank) {
    if (threads_[rank].joinable()) {
      ranks_[rank]->request_stop();
      threads_[rank].join();
    }
  }
  void publish(int64_t version) {
    auto checkpoint = Checkpoint::open(model(version));
    ASSERT_TRUE(checkpoint.ok());
    PublishOptions options;
    options.ready.emplace<ReadyNow>();
    options.version = {0, version};
    options.bucket_bytes = 4096;
    options.ranks_min = kRanks;
    options.ranks_timeout = seconds(20);
    const auto report = publisher_->publish(**checkpoint, options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->status.ok()) << update_report_to_json(*report) << errors();
  }
  std::string errors() const {
    std::string text;
    for (const auto& rank : ranks_) {
      text += "\n" + rank->status().rank.to_text() + ": " + rank->status().last_error.to_string();
    }
    return text;
  }
  // The publisher has met the process that is this rank now.
  bool knows(int rank) const {
    for (const PeerStatus& peer : publisher_->peers()) {
      if (peer.rank.rank == rank) {
        return peer.incarnation == ranks_[rank]->status().incarnation;
      }
    }
    return false;
  }
  bool steps_on(int rank, int64_t version) {
    return eventually([&] {
      const StepStatus status = ranks_[rank]->steps();
      return !status.recent.empty() && status.recent.back().version.version == version;
    });
  }
  void verify_all(int64_t version) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto report = verify_rank(admin(rank), model(version));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_TRUE(report->same()) << verify_report_to_json(*report);
      EXPECT_EQ(report->version, (VersionStamp{0, version}));
      EXPECT_FALSE(report->fenced);
    }
  }

  std::string job_;
  Endpoint endpoint_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<ReferenceRank> ranks_[kRanks];
  std::thread threads_[kRanks];
};

TEST_P(WholeEngineTest, V6_ThreeVersionsStreamIntoAnEngineThatSteps) {
  open_publisher();
  for (int rank = 0; rank < kRanks; ++rank) {
    start(rank);
  }
  for (int64_t version = 1; version <= 4; ++version) {
    publish(version);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(steps_on(rank, version)) << ranks_[rank]->steps().waiting_for;
    }
    verify_all(version);
  }
  std::map<uint64_t, std::set<int64_t>> versions;
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->steps().mixed, 0u);
    for (const StepRecord& record : rank->steps().recent) {
      versions[record.step].insert(record.version.version);
    }
  }
  for (const auto& [step, seen] : versions) {
    EXPECT_EQ(seen.size(), 1u) << "step " << step;
  }
}

TEST_P(WholeEngineTest, M5_ARestartedRankLeavesItsEnginePendingUntilTheNextUpdate) {
  open_publisher();
  for (int rank = 0; rank < kRanks; ++rank) {
    start(rank);
  }
  publish(1);
  EXPECT_TRUE(steps_on(0, 1));
  end(1);
  start(1);
  EXPECT_TRUE(eventually([&] {
    return ranks_[0]->steps().waiting_for.find("rank 1: ") != std::string::npos;
  })) << ranks_[0]->steps().waiting_for;
  const uint64_t run = ranks_[0]->steps().run;
  EXPECT_TRUE(eventually([&] { return knows(1); })) << "the publisher still has its old life";
  publish(2);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(steps_on(rank, 2)) << ranks_[rank]->steps().waiting_for;
  }
  EXPECT_GT(ranks_[0]->steps().run, run);
  verify_all(2);
}

TEST_P(WholeEngineTest, StepsGoOnWithoutAPublisher) {
  open_publisher();
  for (int rank = 0; rank < kRanks; ++rank) {
    start(rank);
  }
  publish(1);
  EXPECT_TRUE(steps_on(2, 1));
  publisher_.reset();
  const uint64_t run = ranks_[2]->steps().run;
  EXPECT_TRUE(eventually([&] { return ranks_[2]->steps().run > run + 20; }))
      << ranks_[0]->steps().waiting_for;
  verify_all(1);
}

TEST_P(WholeEngineTest, V6_APublisherThatEndsAtOnceStillReleasesItsRanks) {
  for (int64_t version = 1; version <= 4; ++version) {
    open_publisher();
    for (int rank = 0; version == 1 && rank < kRanks; ++rank) {
      start(rank);
    }
    publish(version);
    publisher_.reset();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(steps_on(rank, version)) << ranks_[rank]->steps().waiting_for;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, WholeEngineTest,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::Values(Mode::kJournal, Mode::kInPlace,
                                                          Mode::kStaged, Mode::kSwap)),
                         [](const auto& way) {
                           return std::string(std::get<0>(way.param)) + "_" +
                                  std::string(mode_name(std::get<1>(way.param)));
                         });

TEST_F(ToyTest, AFileIsReceivedByOneRankThatStepsOnAndIsVerified) {
  write_toy(folder_ / "v7", 7);
  auto checkpoint = Checkpoint::open(folder_ / "v7");
  ASSERT_TRUE(checkpoint.ok());
  PublishOptions publish;
  publish.ready.emplace<ReadyNow>();
  publish.version = {0, 7};
  publish.bucket_bytes = 1000;
  const auto recorded = record_stream(**checkpoint, publish, folder_ / "stream");
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  ReferenceRankOptions options;
  options.model = folder_ / "v7";
  options.subscriber.endpoint = *Endpoint::parse("file:" + (folder_ / "stream").string());
  options.subscriber.engine = "a";
  options.admin_path = (folder_ / "admin").string();
  auto rank = ReferenceRank::open(options);
  ASSERT_TRUE(rank.ok()) << rank.status().to_string();
  std::thread thread([&] {
    const Status status = (*rank)->run();
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  EXPECT_TRUE(eventually([&] { return (*rank)->steps().run > 2; }));
  const auto report = verify_rank(options.admin_path, folder_ / "v7");
  EXPECT_TRUE(report.ok() && report->same()) << report.status().to_string();
  (*rank)->request_stop();
  thread.join();
}

}  // namespace
}  // namespace changeover::reference
