// What a publisher may be given: strided, empty, scalar and tied tensors, and sources that count
// how they are asked (cases B10, B16, B46; rules U1-U3, W9).
#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/ways.h"

namespace changeover::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A plan whose parameters are its sources, whole.
LoadPlan plan_of(const std::vector<TensorSpec>& specs) {
  LoadPlan plan;
  plan.architecture = "test";
  for (const TensorSpec& spec : specs) {
    const auto index = static_cast<uint32_t>(plan.parameters.size());
    View view;
    int64_t stride = 1;
    for (auto extent = spec.shape.rbegin(); extent != spec.shape.rend(); ++extent) {
      view.dims.insert(view.dims.begin(), {*extent, stride});
      stride *= *extent;
    }
    plan.parameters.push_back(spec);
    plan.sources.push_back({spec, {}});
    plan.pieces.push_back({index, index, view, view, PieceOp::kCopy, ""});
  }
  return plan;
}

class Sources : public testing::TestWithParam<std::string> {
 protected:
  void open(const LoadPlan& plan) {
    publisher_ = open_publisher(publisher_options(GetParam()));
    auto store = ParameterStore::allocate(plan);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(store).take();
    SubscriberOptions options;
    options.endpoint = publisher_->endpoint();
    options.engine = "a";
    auto subscriber = Subscriber::open(options, plan, *store_);
    ASSERT_TRUE(subscriber.ok()) << subscriber.status().to_string();
    subscriber_ = std::move(subscriber).take();
    ASSERT_TRUE(subscriber_->start().ok());
  }
  UpdateReport publish(TensorSource& source, int64_t version, uint64_t bucket = 1 << 20) {
    auto report = publisher_->publish(source, publish_options(version, 1, bucket));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return *report;
  }
  template <typename T>
  std::vector<T> parameter(size_t index, size_t count) {
    std::vector<T> out(count);
    std::memcpy(out.data(), store_->parameters()[index].data, count * sizeof(T));
    return out;
  }
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Subscriber> subscriber_;
};

TEST_P(Sources, CaseB10_StridedTensorsArriveByValue) {
  open(plan_of({{"every_other", DType::kF32, {2}},
                {"transposed", DType::kF32, {3, 2}},
                {"expanded", DType::kF32, {2, 3}}}));
  const std::array<float, 6> x = {0, 1, 2, 3, 4, 5};
  const auto* data = reinterpret_cast<const std::byte*>(x.data());
  for (int64_t version = 1; version <= 3; ++version) {
    auto source = make_memory_source({{"every_other", {DType::kF32, {2}, {2}, data}},
                                      {"transposed", {DType::kF32, {3, 2}, {1, 3}, data}},
                                      {"expanded", {DType::kF32, {2, 3}, {0, 1}, data}}},
                                     version == 2);
    const auto report = publish(**source, version, version == 3 ? 1 : 1 << 20);
    ASSERT_TRUE(report.status.ok()) << report.status.to_string();
    EXPECT_TRUE(report.ranks.at(0).digest_checked);
    EXPECT_THAT(parameter<float>(0, 2), testing::ElementsAre(0, 2));
    EXPECT_THAT(parameter<float>(1, 6), testing::ElementsAre(0, 3, 1, 4, 2, 5));
    EXPECT_THAT(parameter<float>(2, 6), testing::ElementsAre(0, 1, 2, 0, 1, 2));
  }
}

TEST_P(Sources, W9_CaseB46_EmptyAndScalarTensorsTravelAndCount) {
  const std::vector<TensorSpec> specs = {{"first", DType::kF32, {0}},
                                         {"scalar", DType::kF32, {}},
                                         {"middle", DType::kI8, {0, 4}},
                                         {"full", DType::kI8, {3}},
                                         {"last", DType::kF32, {0}}};
  open(plan_of(specs));
  const float pi = 3.25F;
  const std::array<int8_t, 3> full = {1, -2, 3};
  std::vector<NamedTensor> tensors;
  for (const auto& spec : specs) {
    tensors.push_back({spec.name, {spec.dtype, spec.shape, {}, nullptr}});
  }
  tensors[1].view.data = reinterpret_cast<const std::byte*>(&pi);
  tensors[3].view.data = reinterpret_cast<const std::byte*>(full.data());
  for (int64_t version = 1; version <= 3; ++version) {
    auto source = make_memory_source(tensors, false);
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    const auto report = publish(**source, version, version == 2 ? 1 : 1 << 20);
    ASSERT_TRUE(report.status.ok()) << report.status.to_string();
    EXPECT_EQ(report.ranks.at(0).pieces_landed, 5u);
    EXPECT_THAT(parameter<float>(1, 1), testing::ElementsAre(pi));
  }
  tensors.pop_back();
  auto source = make_memory_source(tensors, false);
  EXPECT_THAT(publish(**source, 4).status.message(), HasSubstr("last"));
}

// Counts how it is asked; may hand out another list the second time.
class CountingSource final : public TensorSource {
 public:
  Result<std::span<const TensorSpec>> begin_update() override {
    ++begins;
    return std::span<const TensorSpec>(specs);
  }
  Result<TensorView> read(size_t index) override {
    reads.push_back(index);
    return TensorView{specs[index].dtype, specs[index].shape, {}, bytes.data()};
  }
  void end_update() override { ++ends; }
  uint64_t generation() const override { return 1; }
  bool may_change() const override { return false; }

  std::vector<TensorSpec> specs = {
      {"a", DType::kI8, {4}}, {"e", DType::kI8, {0}}, {"b", DType::kI8, {2}}};
  std::array<std::byte, 4> bytes{};
  int begins = 0;
  int ends = 0;
  std::vector<size_t> reads;
};

TEST_P(Sources, U3_TheListIsReadOnceAndEachTensorInOrder) {
  CountingSource source;
  open(plan_of(source.specs));
  ASSERT_TRUE(publish(source, 1).status.ok());
  EXPECT_EQ(source.begins, 1);
  EXPECT_EQ(source.ends, 1);
  EXPECT_THAT(source.reads, testing::ElementsAre(0, 1, 2));
}

TEST_P(Sources, U1_TheLeaseEndsHoweverTheUpdateDid) {
  CountingSource source;
  open(plan_of({{"other", DType::kI8, {4}}}));
  EXPECT_FALSE(publish(source, 1).status.ok());
  EXPECT_EQ(source.begins, 1);
  EXPECT_EQ(source.ends, 1);
  source.specs.clear();
  EXPECT_FALSE(publisher_->publish(source, publish_options(2, 1)).ok());
  EXPECT_EQ(source.ends, 2);
}

// A rank that holds the offered version asks for its digest before anything is sent (rule U2).
TEST_P(Sources, U2_TheSameVersionIsDigestedFirstAndNotSentAgain) {
  CountingSource source;
  open(plan_of(source.specs));
  ASSERT_TRUE(publish(source, 1).status.ok());
  source.reads.clear();
  const auto again = publish(source, 1);
  EXPECT_EQ(again.ranks.at(0).outcome, RankOutcome::kAlreadyThere);
  EXPECT_EQ(again.payload_bytes, 0u);
  EXPECT_THAT(source.reads, testing::ElementsAre(0, 1, 2));
}

// Calls a hook before each read of its second pass.
class ReadTwice final : public TensorSource {
 public:
  Result<std::span<const TensorSpec>> begin_update() override {
    return std::span<const TensorSpec>(specs);
  }
  Result<TensorView> read(size_t index) override {
    if (reads_++ >= specs.size()) {
      before_second_read();
    }
    return TensorView{specs[index].dtype, specs[index].shape, {}, bytes_.data()};
  }
  void end_update() override {}
  uint64_t generation() const override { return 1; }
  bool may_change() const override { return true; }

  std::vector<TensorSpec> specs = {{"a", DType::kI8, {4}},
                                   {"b", DType::kI8, {2}},
                                   {"c", DType::kI8, {2}},
                                   {"d", DType::kI8, {1}}};
  std::function<void()> before_second_read;

 private:
  std::array<std::byte, 4> bytes_{};
  size_t reads_ = 0;
};

// The rank holds its digest and has voted before the first byte is read again, and waits for the
// decision through reads that take longer than each of its deadlines.
TEST(SourceCheck, U1_U2_R7_ASecondReadLongerThanTheDeadlinesStillCommits) {
  ReadTwice source;
  const LoadPlan plan = plan_of(source.specs);
  auto options = publisher_options("tcp");
  options.deadlines = short_deadlines();
  auto publisher = open_publisher(options);
  auto store = ParameterStore::allocate(plan);
  ASSERT_TRUE(store.ok());
  SubscriberOptions rank;
  rank.endpoint = publisher->endpoint();
  rank.engine = "a";
  rank.deadlines = short_deadlines();
  auto subscriber = Subscriber::open(rank, plan, **store);
  ASSERT_TRUE(subscriber.ok() && (*subscriber)->start().ok());
  source.before_second_read = [&] {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while ((*subscriber)->status().phase != "prepared" &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    EXPECT_EQ((*subscriber)->status().phase, "prepared");
    EXPECT_FALSE((*subscriber)->fence().acquire(400ms).ok());
  };
  const auto report = publisher->publish(source, publish_options(1, 1));
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->status.ok()) << report->status.to_string();
  EXPECT_TRUE(report->ranks.at(0).digest_checked);
}

TEST_P(Sources, DigestsOffIsSaidInTheReport) {
  CountingSource source;
  open(plan_of(source.specs));
  auto how = publish_options(1, 1);
  how.digests = false;
  const auto report = publisher_->publish(source, how);
  ASSERT_TRUE(report.ok() && report->status.ok());
  EXPECT_FALSE(report->digests_on);
  EXPECT_FALSE(report->digest.has_value());
  EXPECT_FALSE(report->ranks.at(0).digest_checked);
}

TEST_P(Sources, CaseB16_TiedTensorsUnderEitherNameOrBothEqual) {
  const Model model(true, true);
  auto publisher = open_publisher(publisher_options(GetParam()));
  Rank rank(model, publisher->endpoint(), {});
  const auto publish_both = [&](int64_t version, const std::byte* head) {
    auto tensors = model.tensors(version);
    NamedTensor tied = tensors.front();
    tied.name = "lm_head.weight";
    tied.view.data = head;
    tensors.push_back(tied);
    auto source = make_memory_source(tensors, false);
    return publisher->publish(**source, publish_options(version, 1, 1))->status;
  };
  ASSERT_EQ(model.tensors(1).front().name, "model.embed_tokens.weight");
  EXPECT_TRUE(publisher->publish(*model.source(1), publish_options(1, 1))->status.ok());
  EXPECT_TRUE(rank.serves(1) && rank.holds(1));
  EXPECT_TRUE(publish_both(2, model.memory(2)[0].data()).ok());
  EXPECT_TRUE(rank.serves(2) && rank.holds(2));
  EXPECT_FALSE(publish_both(3, model.memory(2)[0].data()).ok());
  EXPECT_TRUE(rank.serves(2) && rank.holds(2));
}

INSTANTIATE_TEST_SUITE_P(Roads, Sources, testing::Values("tcp", "shm"), road_name);

}  // namespace
}  // namespace changeover::e2e
