// What each mode promises through the public API (rules R4, T8, T10, T13, V6, P2; cases B34, B60,
// N2).
#include <atomic>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Status publish(Publisher& publisher, const Model& model, int64_t version, uint32_t ranks) {
  const auto report = publisher.publish(*model.source(version), publish_options(version, ranks));
  return report.ok() ? report->status : report.status();
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

class ModesOver : public OverEveryWay {};

// The same store, subscriber and journal or halves all along; contents repeat now and then.
TEST_P(ModesOver, T8_CaseN2_TwentyRoundsInOneProcess) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  const uint64_t buckets[] = {1, model.largest_tensor_bytes() + 1, uint64_t{1} << 30};
  for (int64_t round = 1; round <= 20; ++round) {
    const int64_t content = round % 6 == 0 ? round - 1 : round;
    const auto report =
        publisher->publish(*model.source(content), publish_options(round, 1, buckets[round % 3]));
    ASSERT_TRUE(report.ok() && report->status.ok()) << report->status.to_string();
    ASSERT_TRUE(only.serves(round));
    ASSERT_TRUE(only.holds(content)) << round;
  }
  const uint64_t beside = only->last_report()->mode_memory_bytes;
  EXPECT_EQ(beside != 0, mode() != Mode::kInPlace) << "R4: what the mode holds is told";
}

// Tensors of the bucket's size, one byte over it, and three times it.
TEST_P(ModesOver, CaseB34_TensorsLargerThanTheBucket) {
  constexpr uint64_t kBucket = 1 << 20;
  LoadPlan plan;
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<std::byte>> memory;
  for (const uint64_t bytes : {kBucket, kBucket + 1, 3 * kBucket, uint64_t{7}}) {
    const auto index = static_cast<uint32_t>(memory.size());
    const TensorSpec spec{"t" + std::to_string(index), DType::kU8, {static_cast<int64_t>(bytes)}};
    const View all{0, {{static_cast<int64_t>(bytes), 1}}};
    plan.parameters.push_back(spec);
    plan.sources.push_back({spec, {}});
    plan.pieces.push_back({index, index, all, all, PieceOp::kCopy, ""});
    memory.emplace_back(bytes);
    uint64_t state = index + 5;
    for (std::byte& byte : memory.back()) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      byte = static_cast<std::byte>(state >> 56);
    }
    tensors.push_back({spec.name, {spec.dtype, spec.shape, {}, memory.back().data()}});
  }
  auto publisher = open_publisher(publisher_options(road()));
  auto store = ParameterStore::allocate(plan);
  SubscriberOptions options;
  options.endpoint = publisher->endpoint();
  options.engine = "a";
  options.mode = mode();
  auto subscriber = Subscriber::open(options, plan, **store);
  ASSERT_TRUE(subscriber.ok() && (*subscriber)->start().ok());
  for (int64_t version = 1; version <= 3; ++version) {
    auto source = make_memory_source(tensors, false);
    const auto report = publisher->publish(**source, publish_options(version, 1, kBucket));
    ASSERT_TRUE(report.ok() && report->status.ok()) << report.status().to_string();
    const auto guard = (*subscriber)->fence().acquire(10s);
    ASSERT_TRUE(guard.ok());
    for (size_t i = 0; i < memory.size(); ++i) {
      const std::byte* live = (*store)->half(guard->half())[i].data;
      EXPECT_TRUE(std::equal(memory[i].begin(), memory[i].end(), live)) << i;
    }
    memory[2][100] ^= std::byte{1};
  }
}

// An engine's own memory: written in place of it in every mode but `swap`, whose guards name the
// store's half when that is the live one.
TEST_P(ModesOver, T13_MemoryThatTheEngineHandsIn) {
  const Model model(true);
  const LoadPlan plan = model.plan(0, 1);
  std::vector<std::vector<std::byte>> memory;
  std::vector<LiveParameter> parameters;
  for (const TensorSpec& spec : plan.parameters) {
    memory.emplace_back(static_cast<size_t>(*byte_count(spec.dtype, spec.shape)));
    parameters.push_back({spec, memory.back().data()});
  }
  auto publisher = open_publisher(publisher_options(road()));
  auto store = ParameterStore::adopt(plan, parameters);
  SubscriberOptions options;
  options.endpoint = publisher->endpoint();
  options.engine = "a";
  options.mode = mode();
  auto subscriber = Subscriber::open(options, plan, **store);
  ASSERT_TRUE(subscriber.ok()) << subscriber.status().to_string();
  ASSERT_TRUE((*subscriber)->start().ok());
  for (int64_t version = 1; version <= 3; ++version) {
    ASSERT_TRUE(publish(*publisher, model, version, 1).ok());
    const auto guard = (*subscriber)->fence().acquire(10s);
    ASSERT_TRUE(guard.ok());
    EXPECT_EQ(live_digests(**store, guard->half()), model.expected(version, 0, 1));
    EXPECT_EQ((*store)->parameters()[0].data, memory[0].data());
    EXPECT_EQ(guard->half(), mode() == Mode::kSwap ? version % 2 : 0);
  }
}

// Between updates a region's mapping is replaced by a fresh one at the same address, with readers
// running: none reads anything else, and updates go on in the new one.
TEST_P(ModesOver, P2_RegionsAreReplacedUnderReaders) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options(road()));
  Rank only(model, publisher->endpoint(), rank("a", 0, 1));
  std::map<int64_t, std::vector<Digest>> expected;
  for (int64_t version = 1; version <= 4; ++version) {
    expected[version] = model.expected(version, 0, 1);
  }
  std::atomic<bool> done{false};
  std::atomic<int> reads{0};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!done) {
      const auto guard = only->fence().acquire(50ms);
      if (guard.ok()) {
        wrong += live_digests(only.store(), guard->half()) != expected[guard->version().version];
        ++reads;
      }
    }
  });
  for (int64_t version = 1; version <= 4; ++version) {
    EXPECT_TRUE(publish(*publisher, model, version, 1).ok());
    EXPECT_TRUE(only.serves(version));
    std::vector<uint32_t> regions;
    for (const auto& region : only.store().regions()) {
      regions.push_back(region.id);
    }
    EXPECT_EQ(regions.size(), mode() == Mode::kStaged || mode() == Mode::kSwap ? 2u : 1u);
    for (const uint32_t region : regions) {
      const int before = reads;
      EXPECT_TRUE(only.store().replace(region).ok());
      EXPECT_TRUE(eventually([&] { return reads > before + 2; }));
    }
    EXPECT_TRUE(only.holds(version));
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, ModesOver, every_way(), way_name);

class StagedEngine : public testing::Test {
 protected:
  StagedEngine() {
    auto options = publisher_options("shm");
    options.deadlines = short_deadlines();
    publisher_ = open_publisher(options);
    for (int index = 0; index < 2; ++index) {
      RankOptions rank;
      rank.rank = index;
      rank.tp = 2;
      rank.mode = Mode::kStaged;
      rank.subscriber.engine_picks_boundary = true;
      rank.subscriber.deadlines = short_deadlines();
      ranks_.push_back(std::make_unique<Rank>(model_, publisher_->endpoint(), rank));
    }
  }
  std::future<Status> publish_later(int64_t version) {
    return std::async(std::launch::async,
                      [this, version] { return publish(*publisher_, model_, version, 2); });
  }
  bool staged(int rank) { return (*ranks_[rank])->staged().has_value(); }
  void expect_serves(int rank, int64_t version) {
    EXPECT_TRUE(ranks_[rank]->serves(version) && ranks_[rank]->holds(version));
  }

  const Model model_{true};
  std::unique_ptr<Publisher> publisher_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(StagedEngine, V6_TheEngineServesUntilItSaysWhen) {
  ASSERT_TRUE(publish(*publisher_, model_, 1, 2).ok()) << "no step runs yet: any moment will do";
  for (int64_t version = 2; version <= 4; ++version) {
    auto update = publish_later(version);
    ASSERT_TRUE(eventually([&] { return staged(0) && staged(1); }));
    EXPECT_EQ((*ranks_[0])->staged(), (VersionStamp{0, version}));
    EXPECT_EQ((*ranks_[0])->status().phase, "staged");
    expect_serves(0, version - 1);
    expect_serves(1, version - 1);
    auto first = std::async(std::launch::async, [&] { return (*ranks_[0])->change_over(10s); });
    EXPECT_TRUE(eventually([&] { return (*ranks_[0])->fence().up(); }));
    EXPECT_FALSE((*ranks_[0])->fence().acquire(0ns).ok()) << "fenced from its yes";
    EXPECT_TRUE((*ranks_[1])->change_over(10s).ok());
    EXPECT_TRUE(first.get().ok());
    expect_serves(0, version);
    expect_serves(1, version);
    EXPECT_TRUE(update.get().ok());
  }
  EXPECT_TRUE((*ranks_[0])->change_over(0ns).ok()) << "with nothing staged it asks the fence";
}

// One rank's boundary does not come: it says so, and nobody has changed.
TEST_F(StagedEngine, R7_V6_NoBoundaryIsADeadlineAndAnAbort) {
  ASSERT_TRUE(publish(*publisher_, model_, 1, 2).ok());
  auto update = publish_later(2);
  ASSERT_TRUE(eventually([&] { return staged(0); }));
  EXPECT_TRUE((*ranks_[0])->change_over(10s).ok()) << "the abort lets it serve on";
  EXPECT_THAT(update.get().message(), HasSubstr("for a step boundary of the engine"));
  expect_serves(0, 1);
  expect_serves(1, 1);
  EXPECT_FALSE(staged(0) || staged(1));
  auto next = publish_later(3);
  ASSERT_TRUE(eventually([&] { return staged(0) && staged(1); }));
  auto first = std::async(std::launch::async, [&] { return (*ranks_[0])->change_over(10s); });
  EXPECT_TRUE((*ranks_[1])->change_over(10s).ok());
  EXPECT_TRUE(first.get().ok() && next.get().ok());
  expect_serves(0, 3);
  expect_serves(1, 3);
}

TEST(SwapEngine, V6_AStepThatCarriesItsVersionRunsOnOverTheChange) {
  const Model model(true);
  auto publisher = open_publisher(publisher_options("shm"));
  RankOptions options;
  options.mode = Mode::kSwap;
  std::atomic<int> during{0};
  Rank* rank = nullptr;
  // Runs between finish and release: the new version waits, the old one can be named.
  options.subscriber.on_commit = [&] {
    const auto unnamed = (*rank)->fence().acquire(0ns);
    const auto old = (*rank)->fence().acquire_version({0, 1}, 0ns);
    const auto early = (*rank)->fence().acquire_version({0, 2}, 0ns);
    during += !unnamed.ok() && old.ok() && !early.ok();
    return std::string();
  };
  Rank only(model, publisher->endpoint(), options);
  rank = &only;
  ASSERT_TRUE(publish(*publisher, model, 1, 1).ok());
  ASSERT_TRUE(only.serves(1));
  auto guard = only->fence().acquire_version({0, 1}, 0ns);
  ASSERT_TRUE(guard.ok());
  ASSERT_TRUE(publish(*publisher, model, 2, 1).ok());
  ASSERT_TRUE(only.serves(2));
  EXPECT_EQ(during, 1);
  EXPECT_EQ(live_digests(only.store(), guard->half()), model.expected(1, 0, 1));
  EXPECT_TRUE(only->fence().acquire_version({0, 2}, 0ns).ok());
  const auto third = only->fence().acquire_version({0, 3}, 0ns);
  EXPECT_THAT(third.status().message(), HasSubstr("version 3 cannot be had: version 2 is live"));
}

// R4: refused before anything is mapped, with the numbers.
TEST(SecondHalf, R4_NoRoomForItIsAPlainErrorWithTheNumbers) {
  LoadPlan plan;
  plan.parameters = {{"a", DType::kU8, {int64_t{1} << 50}}};
  plan.sources = {{plan.parameters[0], {}}};
  const View all{0, {{int64_t{1} << 50, 1}}};
  plan.pieces = {{0, 0, all, all, PieceOp::kCopy, ""}};
  std::byte somewhere{};
  auto store = ParameterStore::adopt(plan, {{plan.parameters[0], &somewhere}});
  ASSERT_TRUE(store.ok());
  for (const Mode mode : {Mode::kStaged, Mode::kSwap}) {
    SubscriberOptions options;
    options.endpoint = *Endpoint::parse("shm:none");
    options.engine = "a";
    options.mode = mode;
    const Status status = Subscriber::open(options, plan, **store).status();
    EXPECT_EQ(status.code(), Code::kExhausted);
    EXPECT_THAT(status.message(), HasSubstr(std::string(mode_name(mode))));
    EXPECT_THAT(status.message(), HasSubstr("second copy"));
    EXPECT_THAT(status.message(), HasSubstr("1125899906842624"));
  }
}

}  // namespace
}  // namespace changeover::e2e
