// Buckets of streams that use extensions of the wire (rules W4, W6, R4).
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/digest.h"
#include "base/prng.h"
#include "wire/bucket.h"
#include "wire/metadata.h"
#include "wire/slices.h"

namespace changeover::wire {
namespace {

constexpr WireExtensions kSlices{.slices = true};
constexpr WireExtensions kAligned{.aligned = true};

std::vector<TensorSpec> tensors(const std::vector<int64_t>& sizes) {
  std::vector<TensorSpec> specs;
  for (const int64_t size : sizes) {
    specs.push_back({"t" + std::to_string(specs.size()), DType::kU8, {size}});
  }
  return specs;
}

// "0:3+4 1" per bucket: tensor 0's bytes from 3 on, 4 of them, then all of tensor 1.
std::vector<std::string> plan(const std::vector<int64_t>& sizes, uint64_t bucket_bytes,
                              const WireExtensions& extensions) {
  const std::vector<uint64_t> bytes(sizes.begin(), sizes.end());
  const auto buckets = plan_buckets(tensors(sizes), bucket_bytes, extensions);
  EXPECT_TRUE(buckets.ok()) << buckets.status().to_string();
  std::vector<std::string> out;
  for (const Bucket& bucket : *buckets) {
    std::string text;
    BucketWalk walk(bucket, bytes, extensions.aligned);
    while (const auto place = walk.next()) {
      text += (text.empty() ? "" : " ") + std::to_string(place->tensor);
      if (place->nbytes != bytes[place->tensor]) {
        text += ":" + std::to_string(place->first) + "+" + std::to_string(place->nbytes);
      }
      if (extensions.aligned) {
        text += "@" + std::to_string(place->offset);
      }
    }
    out.push_back(text);
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(BucketExtensions, W6_ATensorLargerThanABucketIsSplit) {
  EXPECT_EQ(plan({4, 20, 4}, 8, kSlices), (Texts{"0", "1:0+8", "1:8+8", "1:16+4 2"}));
  EXPECT_EQ(plan({16, 3}, 8, kSlices), (Texts{"0:0+8", "0:8+8", "1"}));
  EXPECT_EQ(plan({9, 9}, 8, kSlices), (Texts{"0:0+8", "0:8+1", "1:0+8", "1:8+1"}));
  EXPECT_EQ(plan({0, 9, 0}, 8, kSlices), (Texts{"0 1:0+8", "1:8+1 2"}));
  EXPECT_EQ(plan({8, 8}, 8, kSlices), (Texts{"0", "1"})) << "none is larger";
  EXPECT_EQ(plan({200, 1}, 100, kSlices), (Texts{"0:0+64", "0:64+64", "0:128+64", "0:192+8 1"}))
      << "parts of a multiple of 64, so that no element is cut";
}

TEST(BucketExtensions, W6_AlignedTensorsStartAtMultiplesOf64) {
  EXPECT_EQ(plan({3, 0, 5, 64, 1}, 1000, kAligned), (Texts{"0@0 1@3 2@64 3@128 4@192"}));
  EXPECT_EQ(plan({3, 5, 5}, 69, kAligned), (Texts{"0@0 1@64", "2@0"})) << "gaps count";
  EXPECT_EQ(plan({3, 60}, 64, kAligned), (Texts{"0@0", "1@0"}));
}

TEST(BucketExtensions, W6_PlainBucketsAreTheSameWhereNothingIsLarger) {
  const auto specs = tensors({4, 0, 5, 4, 8});
  EXPECT_EQ(*plan_buckets(specs, 8), *plan_buckets(specs, 8, kSlices));
}

TEST(BucketExtensions, W6_DigestsAreOfWholeTensorsWithTheirLastPart) {
  const auto specs = tensors({10, 2});
  const std::vector<uint64_t> sizes = {10, 2};
  const std::vector<Digest> digests = {base::digest({}), Digest{}};
  const WireExtensions extensions{.xxh3 = true, .slices = true};
  const auto buckets = plan_buckets(specs, 8, extensions);
  ASSERT_EQ(buckets->size(), 2u);
  std::string first;
  std::string second;
  ASSERT_TRUE(encode_bucket(specs, sizes, (*buckets)[0], extensions, digests, first).ok());
  ASSERT_TRUE(encode_bucket(specs, sizes, (*buckets)[1], extensions, digests, second).ok());
  EXPECT_EQ(first,
            R"([{"name":"t0","shape":[10],"dtype":"uint8","offset":0,"nbytes":8,"slice":[0,10]}])");
  // XXH3-128 of nothing, as the reference implementation gives it.
  EXPECT_EQ(second,
            R"([{"name":"t0","shape":[10],"dtype":"uint8","offset":0,"nbytes":2,"slice":[8,10],)"
            R"("xxh3":"99aa06d3014798d86001c324468d497f"},)"
            R"({"name":"t1","shape":[2],"dtype":"uint8","offset":2,"nbytes":2,)"
            R"("xxh3":"00000000000000000000000000000000"}])");
  EXPECT_EQ((*buckets)[0].metadata_bytes, first.size());
  EXPECT_EQ((*buckets)[1].metadata_bytes, second.size());
}

TEST(BucketExtensions, R4_W6_NoBucketIsLargerThanItsSizeAndEveryByteTravelsOnce) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    base::Prng prng(seed);
    std::vector<int64_t> sizes(1 + prng.below(12));
    for (int64_t& size : sizes) {
      size = prng.chance(0.2) ? 0 : prng.between(0, 600);
    }
    sizes[prng.below(sizes.size())] = 1;
    const std::vector<TensorSpec> specs = tensors(sizes);
    const std::vector<uint64_t> bytes(sizes.begin(), sizes.end());
    const WireExtensions extensions{prng.chance(0.5), prng.chance(0.5), true};
    const uint64_t limit = 1 + prng.below(300);
    const auto buckets = plan_buckets(specs, limit, extensions);
    RC_ASSERT(buckets.ok());
    std::vector<uint64_t> sent(sizes.size(), 0);
    std::vector<bool> seen(sizes.size(), false);
    SliceTracker tracker;
    for (const Bucket& bucket : *buckets) {
      RC_ASSERT(bucket.payload_bytes > 0 && bucket.payload_bytes <= limit);
      std::string metadata;
      RC_ASSERT(encode_bucket(specs, bytes, bucket, extensions, {}, metadata).ok());
      RC_ASSERT(metadata.size() == bucket.metadata_bytes);
      const auto entries =
          decode_metadata(std::as_bytes(std::span(metadata)), bucket.payload_bytes, extensions);
      RC_ASSERT(entries.ok());
      RC_ASSERT(tracker.on_frame(*entries).ok());
      for (const Entry& entry : *entries) {
        const size_t tensor = std::stoul(entry.spec.name.substr(1));
        RC_ASSERT((entry.slice ? entry.slice->first : 0) == sent[tensor]);
        sent[tensor] += entry.nbytes;
        seen[tensor] = true;
        RC_ASSERT(entry.xxh3.has_value() == (extensions.xxh3 && entry.is_last_part()));
      }
    }
    RC_ASSERT(tracker.on_end().ok());
    RC_ASSERT(sent == bytes);
    RC_ASSERT(std::count(seen.begin(), seen.end(), false) == 0);
  }));
}

}  // namespace
}  // namespace changeover::wire
