#include "reference/live_pass.h"

#include <set>

#include <gtest/gtest.h>

#include "reference/fake_testing.h"

namespace changeover::reference {
namespace {

TEST(LivePass, EveryByteIsReadInTheCourseOfOneRound) {
  FakeStore store({{"a", DType::kU8, {200'000}},
                   {"b", DType::kBF16, {3, 50'000}},
                   {"empty", DType::kF32, {0, 7}},
                   {"scalar", DType::kF32, {}}});
  const LivePass pass(store, 2 * LivePass::kBlockBytes);
  ASSERT_GT(pass.windows(), 2u);
  const auto round = [&] {
    std::vector<uint64_t> sums;
    for (uint64_t step = 0; step < pass.windows(); ++step) {
      sums.push_back(pass.run(step, 0).checksum);
    }
    return sums;
  };
  const auto before = round();
  EXPECT_EQ(before, round()) << "equal bytes, equal checksums";
  for (const LiveParameter& parameter : store.parameters()) {
    const auto bytes = static_cast<size_t>(*byte_count(parameter.spec.dtype, parameter.spec.shape));
    for (size_t at = 0; at < bytes; at += 4999) {
      parameter.data[at] ^= std::byte{1};
      EXPECT_NE(before, round()) << parameter.spec.name << " byte " << at << " was not read";
      parameter.data[at] ^= std::byte{1};
    }
  }
}

TEST(LivePass, ASmallModelIsReadWholeEachStep) {
  FakeStore store({{"a", DType::kU8, {1000}}});
  const LivePass pass(store, 8 << 20);
  EXPECT_EQ(pass.windows(), 1u);
  EXPECT_EQ(pass.run(1, 0).checksum, pass.run(2, 0).checksum);
  EXPECT_EQ(pass.run(7, 0).window, 0u);
}

TEST(LivePass, AModelWithoutParametersHasAStepToo) {
  FakeStore store({});
  const LivePass pass(store, 0);
  EXPECT_EQ(pass.run(3, 0).window, 0u);
}

}  // namespace
}  // namespace changeover::reference
