// Recorded streams: written, replayed to ranks, and received by one rank alone.
#include <atomic>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/kit.h"

namespace changeover::e2e {
namespace {

using ::testing::HasSubstr;

class Recorded : public testing::Test {
 protected:
  std::string record(int64_t version, uint64_t bucket = 1) {
    const auto path = folder_.path() / ("v" + std::to_string(version) + ".stream");
    const auto report =
        record_stream(*model_.source(version), publish_options(version, 0, bucket), path);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->payload_bytes, model_.payload_bytes());
    return path.string();
  }
  static Endpoint file(const std::string& path) { return *Endpoint::parse("file:" + path); }

  const Model model_{true};
  TemporaryFolder folder_;
};

TEST_F(Recorded, OneRankTakesItAloneAndServesIt) {
  Rank rank(model_, file(record(7)), {}, false);
  const auto report = rank->receive(std::chrono::seconds(10));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->outcome, RankOutcome::kCommitted) << report->error.to_string();
  EXPECT_EQ(report->road, "file");
  EXPECT_TRUE(rank.serves(7) && rank.holds(7));
  EXPECT_EQ(rank->status().version, (VersionStamp{0, 7}));
}

// The admin socket asks while the file is read.
TEST_F(Recorded, T11_StatusMayBeAskedMeanwhile) {
  Rank rank(model_, file(record(7)), {}, false);
  std::atomic<bool> done{false};
  std::thread asking([&] {
    while (!done) {
      const RankStatus status = rank->status();
      EXPECT_TRUE(!status.version || status.version == (VersionStamp{0, 7}));
      EXPECT_TRUE(status.version || !status.gate_open);
    }
  });
  const auto report = rank->receive(std::chrono::seconds(10));
  done = true;
  asking.join();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(rank->status().version, (VersionStamp{0, 7}));
  EXPECT_TRUE(rank->status().gate_open);
}

TEST_F(Recorded, AnEngineOfTwoIsRefused) {
  const auto plan = model_.plan(0, 2);
  auto store = ParameterStore::allocate(plan);
  SubscriberOptions options;
  options.endpoint = file(record(1));
  options.engine = "a";
  options.engine_size = 2;
  EXPECT_THAT(Subscriber::open(options, plan, **store).status().message(),
              HasSubstr("decided on by one rank alone"));
}

TEST_F(Recorded, ReplayIsAPublishOfARecordedStream) {
  auto source = open_recorded_stream(record(1));
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  for (const char* road : {"tcp", "shm"}) {
    auto publisher = open_publisher(publisher_options(road));
    Rank rank(model_, publisher->endpoint(), {});
    const auto report = publisher->publish(**source, publish_options(1, 1));
    ASSERT_TRUE(report.ok() && report->status.ok());
    EXPECT_TRUE(rank.serves(1) && rank.holds(1));
  }
}

TEST_F(Recorded, S3_ATruncatedOrSpoiltRecordingIsNamedAndLeavesTheRankFenced) {
  const std::string path = record(1);
  const auto bytes = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, bytes - 40);  // END and a little of the payload
  Rank rank(model_, file(path), {}, false);
  const auto report = rank->receive(std::chrono::seconds(10));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->error.ok());
  EXPECT_FALSE(report->version.has_value());
  EXPECT_FALSE(rank->fence().acquire(std::chrono::nanoseconds(0)).ok());
  EXPECT_FALSE(open_recorded_stream(path).ok());
  std::ofstream(path, std::ios::binary) << "not a stream";
  EXPECT_FALSE(rank->receive(std::chrono::seconds(10)).ok());
  EXPECT_FALSE(open_recorded_stream(path).ok());
}

TEST_F(Recorded, T9_AReloadLiftsTheFenceOnlyWhenEveryParameterWasRewritten) {
  auto publisher = open_publisher(publisher_options("tcp"));
  Rank rank(model_, publisher->endpoint(), {});
  ASSERT_TRUE(publisher->publish(*model_.source(1), publish_options(1, 1))->status.ok());
  ASSERT_TRUE(rank.serves(1));
  auto reload = rank->begin_reload(VersionStamp{0, 5});
  ASSERT_TRUE(reload.ok()) << reload.status().to_string();
  auto tensors = model_.tensors(5);
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    ASSERT_TRUE((*reload)->write(tensors[i].name, tensors[i].view).ok());
  }
  EXPECT_FALSE((*reload)->finish().ok());
  EXPECT_FALSE(rank->fence().acquire(std::chrono::nanoseconds(0)).ok());
  auto rest = rank->begin_reload(VersionStamp{0, 5});
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  ASSERT_TRUE((*rest)->write(tensors.back().name, tensors.back().view).ok());
  EXPECT_TRUE((*rest)->finish().ok());
  EXPECT_TRUE(rank.serves(5) && rank.holds(5));
}

TEST_F(Recorded, T13_AnEnginesOwnMemoryIsFilledInPlace) {
  const auto plan = model_.plan(0, 1);
  auto own = ParameterStore::allocate(plan);
  std::vector<LiveParameter> parameters((*own)->parameters().begin(), (*own)->parameters().end());
  std::reverse(parameters.begin(), parameters.end());
  auto adopted = ParameterStore::adopt(plan, parameters);
  ASSERT_TRUE(adopted.ok());
  EXPECT_TRUE((*adopted)->regions().empty());
  SubscriberOptions options;
  options.endpoint = file(record(3));
  options.engine = "a";
  auto subscriber = Subscriber::open(options, plan, **adopted);
  ASSERT_TRUE(subscriber.ok()) << subscriber.status().to_string();
  ASSERT_TRUE((*subscriber)->receive(std::chrono::seconds(10)).ok());
  EXPECT_EQ(live_digests(**own), model_.expected(3, 0, 1));
}

}  // namespace
}  // namespace changeover::e2e
