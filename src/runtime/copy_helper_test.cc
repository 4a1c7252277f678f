#include "runtime/copy_helper.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace changeover::runtime {
namespace {

// Copies of no byte, of one, of a chunk, one over, and several; with no helper and with more than
// there are chunks; one after another, so that a helper of the last one is not in the way.
TEST(CopyHelper, EveryByteOfEveryCopy) {
  const std::vector<uint64_t> sizes = {0, 1, 70000, 4 << 20, (4 << 20) + 1, 9 << 20, 0};
  for (const int threads : {1, 2, 7}) {
    CopyHelper helper(threads);
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<std::vector<std::byte>> from;
      std::vector<std::vector<std::byte>> to;
      std::vector<update::BulkCopy> copies;
      for (const uint64_t bytes : sizes) {
        from.emplace_back(bytes);
        base::Prng(round * 100 + from.size()).fill(from.back());
        to.emplace_back(bytes);
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        copies.push_back({to[i].data(), from[i].data(), sizes[i]});
      }
      helper.copy(copies);
      EXPECT_EQ(to, from) << threads << " threads";
    }
    helper.copy({});
  }
}

}  // namespace
}  // namespace changeover::runtime
