#include <atomic>
#include <cstring>
#include <thread>

#include <changeover/parameter_store.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/fd.h"
#include "os/mapping.h"

namespace changeover {
namespace {

using ::testing::HasSubstr;

LoadPlan plan() {
  LoadPlan out;
  out.parameters = {
      {"a", DType::kF32, {3}}, {"b", DType::kBF16, {2, 5}}, {"empty", DType::kI8, {0}}};
  return out;
}

TEST(ParameterStore, AllocatesZeroedAlignedMemoryInThePlansOrder) {
  const auto store = ParameterStore::allocate(plan());
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  const auto parameters = (*store)->parameters();
  ASSERT_EQ(parameters.size(), 3u);
  for (const auto& parameter : parameters) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter.data) % 64, 0u);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(parameters[1].data[i], std::byte{0});
  }
}

TEST(ParameterStore, NoRoomIsAPlainErrorWithTheNumbers) {
  LoadPlan huge;
  huge.parameters = {{"a", DType::kF32, {int64_t{1} << 50}}};
  const auto store = ParameterStore::allocate(huge);
  EXPECT_EQ(store.status().code(), Code::kExhausted);
  EXPECT_THAT(store.status().message(), HasSubstr("4503599627370496"));
}

// Each of them is a size that can be written down; what they add up to is not, once rounded to
// pages.
TEST(ParameterStore, S2_SizesThatAddUpToMoreThanAnAddressHoldsAreRefused) {
  LoadPlan huge;
  for (const char* name : {"a", "b"}) {
    huge.parameters.push_back({name, DType::kU8, {INT64_MAX}});
  }
  const auto store = ParameterStore::allocate(huge);
  EXPECT_EQ(store.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(store.status().message(), HasSubstr("2^64 bytes, at b"));
  huge.parameters.pop_back();
  EXPECT_EQ(ParameterStore::allocate(huge).status().code(), Code::kExhausted);
}

// Whoever holds a descriptor lent before writes where nobody looks; readers never see anything
// else.
TEST(ParameterStore, T13_P2_ReplaceKeepsAddressAndContentWithReadersRunning) {
  auto opened = ParameterStore::allocate(plan());
  ParameterStore& store = **opened;
  std::byte* data = store.parameters()[0].data;
  std::memset(data, 7, 12);
  const os::Fd lent(*store.lend(0));
  ASSERT_TRUE(lent.valid());
  auto writer = os::Mapping::map(lent, store.regions()[0].bytes, os::Access::kReadWrite);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->data()[0], std::byte{7}) << "the same memory before";
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!done) {
      wrong += reinterpret_cast<volatile std::byte*>(data)[3] != std::byte{7};
    }
  });
  for (uint64_t round = 2; round < 12; ++round) {
    ASSERT_TRUE(store.replace(0).ok());
    EXPECT_EQ(store.regions()[0].generation, round);
    std::memset(writer->data(), 9, 12);
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.parameters()[0].data, data);
  EXPECT_FALSE(store.lend(1).ok());
}

// The second half stays until the store goes, keeps the first one's addresses and its padding, and
// can be lent and replaced on its own.
TEST(ParameterStore, T13_R4_ASecondHalfOfOwnedOrAdoptedMemory) {
  LoadPlan padded = plan();
  padded.paddings = {{1, {5, {{5, 1}}}}};
  std::array<std::byte, 64> memory{};
  std::fill_n(memory.begin() + 16, 20, std::byte{0x3c});
  const auto adopted =
      ParameterStore::adopt(padded, {{{"a", DType::kF32, {3}}, memory.data()},
                                     {{"b", DType::kBF16, {2, 5}}, memory.data() + 16},
                                     {{"empty", DType::kI8, {0}}, nullptr}});
  const auto owned = ParameterStore::allocate(padded);
  for (ParameterStore* store : {adopted->get(), owned->get()}) {
    const std::byte* first = store->half(0)[1].data;
    EXPECT_TRUE(store->half(1).empty());
    ASSERT_TRUE(store->add_half().ok());
    ASSERT_EQ(store->half(1).size(), 3u);
    const std::byte* second = store->half(1)[1].data;
    ASSERT_TRUE(store->add_half().ok());
    EXPECT_EQ(store->half(1)[1].data, second);
    EXPECT_EQ(store->half(0)[1].data, first);
    EXPECT_NE(first, second);
    EXPECT_EQ(std::memcmp(first, second, 20), 0);
    EXPECT_EQ(store->regions().back().id, 1u);
    std::memset(store->half(1)[0].data, 5, 12);
    EXPECT_NE(live_digests(*store, 0), live_digests(*store, 1));
    const os::Fd lent(*store->lend(1));
    ASSERT_TRUE(store->replace(1).ok());
    EXPECT_EQ(store->half(1)[0].data[11], std::byte{5});
    EXPECT_EQ(store->regions().back().generation, 2u);
  }
  EXPECT_EQ((*adopted)->regions().size(), 1u);
  EXPECT_EQ((*adopted)->replace(0).code(), Code::kRefused);
  EXPECT_EQ((*owned)->regions().size(), 2u);
}

TEST(ParameterStore, AdoptedMemoryIsCheckedAgainstThePlan) {
  std::array<std::byte, 64> memory{};
  const LiveParameter a{{"a", DType::kF32, {3}}, memory.data()};
  const LiveParameter b{{"b", DType::kBF16, {2, 5}}, memory.data() + 16};
  const LiveParameter empty{{"empty", DType::kI8, {0}}, nullptr};
  const auto good = ParameterStore::adopt(plan(), {b, empty, a});
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ((*good)->parameters()[0].data, memory.data());
  EXPECT_EQ((*good)->replace(0).code(), Code::kRefused);
  const auto refused = [](std::vector<LiveParameter> given) {
    return ParameterStore::adopt(plan(), std::move(given)).status().message();
  };
  EXPECT_THAT(refused({a, empty}), HasSubstr("parameter b is not among the given"));
  EXPECT_THAT(refused({a, a, b, empty}), HasSubstr("given twice"));
  LiveParameter wrong = b;
  wrong.spec.shape = {5, 2};
  EXPECT_THAT(refused({a, wrong, empty}),
              HasSubstr("bfloat16 [5,2], the plan says bfloat16 [2,5]"));
  wrong = b;
  wrong.data = nullptr;
  EXPECT_THAT(refused({a, wrong, empty}), HasSubstr("has no memory"));
  wrong = b;
  wrong.spec.name = "c";
  EXPECT_THAT(refused({a, b, empty, wrong}), HasSubstr("parameter c is not one of the plan's"));
}

}  // namespace
}  // namespace changeover
