#include "wire/bucket.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/prng.h"
#include "wire/metadata.h"

namespace changeover::wire {
namespace {

std::vector<TensorSpec> tensors(std::vector<int64_t> sizes) {
  std::vector<TensorSpec> specs;
  for (const int64_t size : sizes) {
    specs.push_back({"t" + std::to_string(specs.size()), DType::kU8, {size}});
  }
  return specs;
}

// Tensor counts per bucket.
std::vector<size_t> plan(std::vector<int64_t> sizes, uint64_t bucket_bytes) {
  const auto buckets = plan_buckets(tensors(std::move(sizes)), bucket_bytes);
  EXPECT_TRUE(buckets.ok()) << buckets.status().to_string();
  std::vector<size_t> counts;
  for (const Bucket& bucket : *buckets) {
    counts.push_back(bucket.count);
  }
  return counts;
}

using Counts = std::vector<size_t>;

TEST(Buckets, W4_FlushBeforeExceedingAndAfterReaching) {
  EXPECT_EQ(plan({4, 4, 4}, 8), (Counts{2, 1}));
  EXPECT_EQ(plan({4, 5, 4}, 8), (Counts{1, 1, 1}));
  EXPECT_EQ(plan({8, 1}, 8), (Counts{1, 1}));
  EXPECT_EQ(plan({7, 1, 1}, 8), (Counts{2, 1}));
  EXPECT_EQ(plan({100, 1, 100, 1}, 8), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(plan({1, 1, 1}, 1), (Counts{1, 1, 1}));
  EXPECT_EQ(plan({1, 2, 3}, kBucketBytesDefault), (Counts{3}));
}

TEST(Buckets, W9_ZeroSizeTensorsGoWithTheNextBucketAndTheLastWithTheLast) {
  EXPECT_EQ(plan({16, 0, 16}, 16), (Counts{1, 2}));
  EXPECT_EQ(plan({16, 0}, 16), (Counts{2}));
  EXPECT_EQ(plan({16, 16, 0, 0, 0}, 16), (Counts{1, 4}));
  EXPECT_EQ(plan({0, 0, 3}, 16), (Counts{3}));
  EXPECT_EQ(plan({3, 0, 3}, 16), (Counts{3}));
}

void expect_refused(const std::vector<TensorSpec>& specs, uint64_t bytes, std::string_view why) {
  const auto got = plan_buckets(specs, bytes);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
  EXPECT_NE(got.status().message().find(why), std::string::npos) << got.status().message();
}

TEST(Buckets, W9_AModelOfZeroSizeTensorsAloneIsRefused) {
  expect_refused(tensors({0, 0}), 16, "all 2 tensors are of zero size");
  expect_refused({}, 16, "no tensors");
}

TEST(Buckets, RefusesWhatNoReaderTakes) {
  expect_refused(tensors({1}), 0, "at least 1 byte");
  expect_refused({{"a", DType::kU8, {1}}, {"b", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, 16,
                 "tensor \"a\": the name comes twice");
  expect_refused({{"a", DType::kF4, {2}}}, 16, "tensor \"a\": dtype F4");
  expect_refused({{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {1}}}, 16, "overflow");
  expect_refused({{"a", DType::kU8, {-1}}}, 16, "tensor \"a\": dimension 0 is -1");
}

TEST(Buckets, W7_MetadataOverTheLimitIsRefused) {
  std::vector<TensorSpec> specs;
  const std::string pad(4000, 'x');
  for (int i = 0; i < 17'000; ++i) {
    specs.push_back({pad + std::to_string(i), DType::kU8, {1}});
  }
  expect_refused(specs, 1 << 20, "use smaller buckets");
  EXPECT_TRUE(plan_buckets(specs, 1 << 12).ok());
}

TEST(Buckets, EveryTensorOnceInOrderAndNoBucketWithoutBytes) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    base::Prng prng(seed);
    std::vector<int64_t> sizes(1 + prng.below(20));
    for (int64_t& size : sizes) {
      size = prng.chance(0.3) ? 0 : prng.between(0, 12);
    }
    sizes[prng.below(sizes.size())] = 1;
    const std::vector<TensorSpec> specs = tensors(sizes);
    const uint64_t limit = 1 + prng.below(16);
    const auto buckets = plan_buckets(specs, limit);
    RC_ASSERT(buckets.ok());
    size_t next = 0;
    for (const Bucket& bucket : *buckets) {
      RC_ASSERT(bucket.first == next);
      next += bucket.count;
      uint64_t bytes = 0;
      uint64_t with_bytes = 0;
      for (size_t i = bucket.first; i < next; ++i) {
        bytes += static_cast<uint64_t>(sizes[i]);
        with_bytes += sizes[i] > 0 ? 1 : 0;
      }
      RC_ASSERT(bytes == bucket.payload_bytes && bytes > 0);
      RC_ASSERT(bytes <= limit || with_bytes == 1);
      std::string metadata;
      RC_ASSERT(
          encode_metadata(std::span(specs).subspan(bucket.first, bucket.count), metadata).ok());
      RC_ASSERT(metadata.size() == bucket.metadata_bytes);
    }
    RC_ASSERT(next == specs.size());
  }));
}

}  // namespace
}  // namespace changeover::wire
