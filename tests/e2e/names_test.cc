// Names that differ, tensors that one rank alone cannot take, memory that must not move or grow
// (cases B01, B17, B37; rules R4, T6, T9, T13, T14).
#include <array>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A rank with a plan of the test's own.
struct PlannedRank {
  PlannedRank(const Endpoint& endpoint, const LoadPlan& plan, int index = 0, int size = 1) {
    auto made = ParameterStore::allocate(plan);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    store = std::move(made).take();
    SubscriberOptions options;
    options.endpoint = endpoint;
    options.engine = "a";
    options.rank = index;
    options.engine_size = size;
    auto opened = Subscriber::open(options, plan, *store);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    subscriber = std::move(opened).take();
    EXPECT_TRUE(subscriber->start().ok());
  }
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<Subscriber> subscriber;
};

class NamesOver : public testing::TestWithParam<std::string> {
 protected:
  NamesOver() : publisher_(open_publisher(publisher_options(GetParam()))) {}
  Status publish(const std::vector<NamedTensor>& tensors, int64_t version, uint32_t ranks = 1) {
    auto source = make_memory_source(tensors, false);
    EXPECT_TRUE(source.ok()) << source.status().to_string();
    const auto report = publisher_->publish(**source, publish_options(version, ranks, 1));
    return report.ok() ? report->status : report.status();
  }
  // The model's tensors as a trainer that wraps its modules names them.
  std::vector<NamedTensor> wrapped(int64_t version) const {
    auto tensors = model_.tensors(version);
    for (NamedTensor& tensor : tensors) {
      const size_t layer = tensor.name.find(".layers.");
      if (layer != std::string::npos) {
        tensor.name.insert(layer + 1, "_fsdp_wrapped_module.");
      }
      tensor.name.insert(0, "base_model.model.");
    }
    return tensors;
  }

  const Model model_{true};
  std::unique_ptr<Publisher> publisher_;
};

TEST_P(NamesOver, CaseB17_WrappedNamesMatchByTheDeclaredRule) {
  LoadPlan plan = model_.plan(0, 1);
  plan.drop_segments = {"_fsdp_wrapped_module"};
  plan.strip_prefixes = {"base_model.model"};
  PlannedRank rank(publisher_->endpoint(), plan);
  for (int64_t version = 1; version <= 3; ++version) {
    const Status status = publish(wrapped(version), version);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(live_digests(*rank.store), model_.expected(version, 0, 1));
  }
}

TEST_P(NamesOver, CaseB17_WithoutTheRuleBothSidesAreNamedAndNothingIsTouched) {
  LoadPlan plan = model_.plan(0, 1);
  plan.drop_segments.clear();
  plan.strip_prefixes.clear();
  PlannedRank rank(publisher_->endpoint(), plan);
  ASSERT_TRUE(publish(model_.tensors(1), 1).ok());
  const Status status = publish(wrapped(2), 2);
  EXPECT_THAT(status.message(), HasSubstr("\"base_model.model.model.embed_tokens.weight\""));
  EXPECT_THAT(status.message(), HasSubstr("waits for \"model.embed_tokens.weight\""));
  EXPECT_EQ(live_digests(*rank.store), model_.expected(1, 0, 1));
  EXPECT_FALSE(rank.subscriber->status().fenced) << "no byte was written";
}

TEST_P(NamesOver, CaseB17_ZeroOfNIsNoSuccess) {
  LoadPlan plan = model_.plan(0, 1);
  plan.ignorable = {"extra.*"};
  PlannedRank rank(publisher_->endpoint(), plan);
  const std::array<std::byte, 4> bytes{};
  const Status status = publish({{"extra.rope", {DType::kI8, {4}, {}, bytes.data()}}}, 1);
  EXPECT_THAT(status.message(), HasSubstr("0 of"));
  EXPECT_FALSE(rank.subscriber->status().version.has_value());
}

// Case B01: one rank meets what it cannot take when the data is under way. The publisher gets its
// words, the other rank is where it was, and the next update needs nothing to be restarted.
TEST_P(NamesOver, T6_CaseB01_OneRankRefusesInTheDataPhase) {
  const LoadPlan narrow = model_.plan(1, 2);
  LoadPlan wide = model_.plan(0, 2);
  wide.ignorable = {"unknown.x"};
  PlannedRank a0(publisher_->endpoint(), wide, 0, 2);
  PlannedRank a1(publisher_->endpoint(), narrow, 1, 2);
  ASSERT_TRUE(publish(model_.tensors(1), 1, 2).ok());
  const auto before = live_digests(*a0.store);
  auto tensors = model_.tensors(2);
  const std::array<std::byte, 4> bytes{};
  tensors.push_back({"unknown.x", {DType::kI8, {4}, {}, bytes.data()}});
  const auto begin = std::chrono::steady_clock::now();
  const Status status = publish(tensors, 2, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_THAT(status.message(), HasSubstr("a/1"));
  EXPECT_THAT(status.message(), HasSubstr("\"unknown.x\": no piece of this rank's plan wants it"));
  EXPECT_EQ(a0.subscriber->status().version, (VersionStamp{0, 1}));
  EXPECT_EQ(live_digests(*a0.store), before);
  EXPECT_TRUE(publish(model_.tensors(3), 3, 2).ok());
}

// Rule T13: captured graphs hold the addresses. They stay over commits and a restored abort.
TEST_P(NamesOver, T13_AddressesOfLiveParametersStay) {
  PlannedRank rank(publisher_->endpoint(), model_.plan(0, 1));
  std::vector<const std::byte*> before;
  for (const LiveParameter& parameter : rank.store->parameters()) {
    before.push_back(parameter.data);
  }
  for (int64_t version = 1; version <= 5; version += 2) {
    ASSERT_TRUE(publish(model_.tensors(version), version).ok());
    auto short_of_one = model_.tensors(version + 1);
    short_of_one.pop_back();
    ASSERT_FALSE(publish(short_of_one, version + 1).ok());
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(rank.store->parameters()[i].data, before[i]);
    }
    EXPECT_EQ(live_digests(*rank.store), model_.expected(version, 0, 1));
  }
}

TEST_P(NamesOver, T9_NoReloadWhileAnUpdateIsOpen) {
  Rank rank(model_, publisher_->endpoint(), {});
  ASSERT_TRUE(publish(model_.tensors(1), 1).ok());
  auto how = publish_options(2, 1, 1);
  Status tried;
  how.on_progress = [&](uint64_t, uint64_t) {
    tried = rank->begin_reload(VersionStamp{0, 9}).status();
  };
  const auto report = publisher_->publish(*model_.source(2), how);
  ASSERT_TRUE(report.ok() && report->status.ok());
  EXPECT_EQ(tried.code(), Code::kRefused);
  EXPECT_THAT(tried.message(), HasSubstr("an update is open here"));
  EXPECT_TRUE(rank.serves(2) && rank.holds(2));
}

INSTANTIATE_TEST_SUITE_P(Roads, NamesOver, testing::Values("tcp", "shm"), road_name);

// One version over every road, asked before and after: the same number, the same digest.
TEST(EveryRoad, T14_CaseB37_TheSameVersionAndTheSameWordsInTheReport) {
  const Model model(true);
  TemporaryFolder folder;
  const auto path = folder.path() / "v1.stream";
  const auto recorded = record_stream(*model.source(1), publish_options(1, 0, 4096), path);
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  EXPECT_EQ(recorded->version, (VersionStamp{0, 1}));
  for (const std::string road : {"tcp", "shm", "file"}) {
    SCOPED_TRACE(road);
    auto publisher = road == "file" ? nullptr : open_publisher(publisher_options(road));
    Rank rank(model, publisher ? publisher->endpoint() : *Endpoint::parse("file:" + path.string()),
              {}, road != "file");
    EXPECT_FALSE(rank->status().version.has_value());
    RankReport report;
    if (publisher) {
      const auto update = publisher->publish(*model.source(1), publish_options(1, 1, 4096));
      ASSERT_TRUE(update.ok() && update->status.ok());
      EXPECT_EQ(update->digest, recorded->digest);
      EXPECT_EQ(update->buckets, recorded->buckets);
      report = update->ranks.at(0);
      EXPECT_EQ(report.digest, recorded->digest);
    } else {
      const auto update = rank->receive(10s);
      ASSERT_TRUE(update.ok()) << update.status().to_string();
      report = *update;
    }
    ASSERT_TRUE(rank.serves(1));
    EXPECT_EQ(rank->status().version, (VersionStamp{0, 1}));
    EXPECT_EQ(report.version, (VersionStamp{0, 1}));
    EXPECT_FALSE(report.version_before.has_value());
    EXPECT_EQ(report.road, road);
    EXPECT_FALSE(report.road_reason.empty());
    EXPECT_EQ(report.way, "stream");
    EXPECT_EQ(report.pieces_landed, report.pieces_expected);
    EXPECT_EQ(report.pieces_landed, model.plan(0, 1).pieces.size());
    EXPECT_EQ(report.bytes_received, model.payload_bytes());
    EXPECT_EQ(report.bytes_written, model.payload_bytes());
    EXPECT_EQ(report.buckets, recorded->buckets);
    EXPECT_GT(report.seconds.receive, 0);
    EXPECT_GE(report.seconds.pause, report.seconds.receive);
    EXPECT_FALSE(report.fenced);
    EXPECT_TRUE(report.error.ok());
  }
}

// The process's resident memory in bytes: now ("VmRSS:"), or its peak ("VmHWM:").
uint64_t resident(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == key) {
      uint64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes << 10;
    }
  }
  return 0;
}

// Publisher and rank in one process, all of their own memory touched before: what an update adds at
// its peak has nothing to do with the model's size.
TEST(TransferBuffers, R4_ThePeakDoesNotGrowWithTheModel) {
  constexpr int64_t kTensors = 48;
  constexpr int64_t kTensorBytes = 1 << 20;
  LoadPlan plan;
  plan.architecture = "test";
  std::vector<std::byte> memory(kTensors * kTensorBytes);
  std::vector<NamedTensor> tensors;
  for (uint32_t i = 0; i < kTensors; ++i) {
    const TensorSpec spec{"t" + std::to_string(i), DType::kI8, {kTensorBytes}};
    plan.parameters.push_back(spec);
    plan.sources.push_back({spec, {}});
    const View view{0, {{kTensorBytes, 1}}};
    plan.pieces.push_back({i, i, view, view, PieceOp::kCopy, ""});
    tensors.push_back({spec.name, {spec.dtype, spec.shape, {}, memory.data() + i * kTensorBytes}});
  }
  for (const char* road : {"tcp", "shm"}) {
    SCOPED_TRACE(road);
    auto publisher = open_publisher(publisher_options(road));
    PlannedRank rank(publisher->endpoint(), plan);
    for (int64_t version = 1; version <= 2; ++version) {
      std::fill(memory.begin(), memory.end(), static_cast<std::byte>(version));
      auto source = make_memory_source(tensors, false);
      std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
      const uint64_t before = resident("VmRSS:");
      const auto report = publisher->publish(**source, publish_options(version, 1, 2 << 20));
      ASSERT_TRUE(report.ok() && report->status.ok());
      if (version == 2) {
        // Two buckets and the largest tensor on both sides, and a little for everything else.
        EXPECT_LT(resident("VmHWM:"), before + 2 * (2 * (2 << 20) + kTensorBytes) + (2 << 20));
      }
    }
    EXPECT_EQ(live_digests(*rank.store).size(), static_cast<size_t>(kTensors));
  }
}

}  // namespace
}  // namespace changeover::e2e
