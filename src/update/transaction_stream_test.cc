// What counts as landed, and what a stream may not bring (rules T4-T6, U2, R5; cases B12, B16).
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "update/toy_model_testing.h"
#include "update/transaction.h"

namespace changeover::update {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

constexpr VersionStamp kV1{0, 1};
constexpr VersionStamp kV2{0, 2};

size_t index_of(std::span<const Sent> tensors, std::string_view name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].spec.name == name) {
      return i;
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

// Begins, sends `tensors` one per frame, ends and prepares; the first failure.
Status offer(ToyRank& rank, std::span<const Sent> tensors, bool digests_on = true) {
  CHANGEOVER_TRY(rank.transaction->begin(kV2, {}, digests_on).why);
  CHANGEOVER_TRY(send_all(*rank.transaction, tensors, 1));
  return rank.transaction->prepare(digests_on ? std::optional(version_digest(tensors))
                                              : std::nullopt);
}

// Case B12: neither the bucket size nor the cut into runs nor the order changes the result.
TEST(Transaction, CaseB12_EveryBucketSizeAndRunSizeGivesTheSameBytes) {
  const LoadPlan plan = toy_plan();
  const Weights weights = toy_weights(plan, 4);
  std::vector<Sent> tensors = all_tensors(plan, weights);
  base::Prng random(12);
  for (size_t per_frame = 1; per_frame <= tensors.size(); ++per_frame) {
    for (size_t run_bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{10}, size_t{1} << 20}) {
      for (size_t i = tensors.size(); i > 1; --i) {  // parts of different layers interleaved
        std::swap(tensors[i - 1], tensors[random.below(i)]);
      }
      ToyRank rank;
      ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
      ASSERT_TRUE(send_all(*rank.transaction, tensors, per_frame, run_bytes).ok());
      ASSERT_TRUE(rank.transaction->prepare(version_digest(tensors)).ok());
      rank.transaction->finish();
      ASSERT_EQ(rank.live(), rank.cold(weights)) << per_frame << " " << run_bytes;
    }
  }
}

TEST(Transaction, CaseB12_AMissingPartIsNamed) {
  ToyRank rank;
  std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  tensors.erase(tensors.begin() + static_cast<long>(index_of(tensors, "layers.1.v.weight")));
  const Status status = offer(rank, tensors);
  EXPECT_THAT(status.message(), HasSubstr("layers.1.qkv_proj: part v missing"));
  EXPECT_THAT(status.message(), Not(HasSubstr("layers.0")));
}

TEST(Transaction, T4_AParameterCountsOnceEveryPieceOfItHasLanded) {
  ToyRank rank;
  const auto tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  uint64_t landed = 0;
  for (const Sent& tensor : tensors) {
    EXPECT_EQ(rank.transaction->report().pieces_landed, landed);
    ASSERT_TRUE(send_frame(*rank.transaction, {&tensor, 1}, 64).ok());
    ++landed;
  }
  EXPECT_EQ(rank.transaction->report().pieces_landed, rank.plan.pieces.size());
}

TEST(Transaction, T4_APieceThatLandsTwiceFailsTheUpdate) {
  ToyRank rank;
  std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  tensors.push_back(tensors[2]);
  const Status status = offer(rank, tensors);
  EXPECT_THAT(status.message(), HasSubstr("came twice"));
  EXPECT_THAT(status.message(), HasSubstr(tensors[2].spec.name));
}

// Case B17: two names that are equal after the declared rules are one tensor sent twice.
TEST(Transaction, T4_TwoNamesEqualAfterStrippingCollide) {
  LoadPlan plan = toy_plan();
  plan.strip_prefixes = {"model"};
  ToyRank rank(Mode::kJournal, plan);
  std::vector<Sent> tensors = all_tensors(plan, toy_weights(plan, 1));
  tensors.push_back(tensors[2]);
  tensors.back().spec.name = "model." + tensors[2].spec.name;
  const Status status = offer(rank, tensors);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("model." + tensors[2].spec.name));
}

// Case B16 (a), (b), (c), (d).
TEST(Transaction, CaseB16_TiedNamesMayComeBothIfBitwiseEqualAndCountOnce) {
  const Weights weights = toy_weights(toy_plan(), 1);
  Sent head = all_tensors(toy_plan(), weights)[0];
  ASSERT_EQ(head.spec.name, "embed.weight");
  head.spec.name = "lm_head.weight";
  for (bool digests_on : {true, false}) {
    for (bool head_first : {true, false}) {
      ToyRank rank;
      std::vector<Sent> tensors = all_tensors(rank.plan, weights);
      tensors.insert(head_first ? tensors.begin() : tensors.end(), head);
      ASSERT_TRUE(offer(rank, tensors, digests_on).ok());  // (b)
      EXPECT_EQ(rank.transaction->report().pieces_landed, rank.plan.pieces.size());
      EXPECT_EQ(rank.transaction->report().bytes_written, rank.memory.bytes().size());
      rank.transaction->finish();
      EXPECT_EQ(rank.live(), rank.cold(weights));
    }
    ToyRank alone;
    std::vector<Sent> tensors = all_tensors(alone.plan, weights);
    tensors[0] = head;  // (a) under either name
    EXPECT_TRUE(offer(alone, tensors, digests_on).ok());

    ToyRank other;
    tensors = all_tensors(other.plan, weights);
    tensors.push_back(head);
    tensors.back().bytes[3] ^= std::byte{1};
    const Status status = offer(other, tensors, digests_on);  // (c)
    EXPECT_THAT(status.message(), HasSubstr("different content"));
    EXPECT_THAT(status.message(), HasSubstr("lm_head.weight"));
  }
  LoadPlan untied = toy_plan();
  untied.sources[0].aliases.clear();
  ToyRank rank(Mode::kJournal, untied);
  std::vector<Sent> tensors = all_tensors(untied, weights);
  tensors[0] = head;
  EXPECT_THAT(offer(rank, tensors).message(), HasSubstr("lm_head.weight"));  // (d)
}

TEST(Transaction, T5_NothingWaivesCoverage) {
  ToyRank rank;
  const std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  for (size_t without = 0; without < tensors.size(); ++without) {
    std::vector<Sent> rest = tensors;
    rest.erase(rest.begin() + static_cast<long>(without));
    const Status status = offer(rank, rest);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(tensors[without].spec.name)) << "zero-size ones too";
    rank.transaction->finish();
    EXPECT_EQ(rank.transaction->version(), std::nullopt);
    rank.transaction->abort(status, false);
  }
  EXPECT_THAT(offer(rank, {}).message(), HasSubstr("0 of"));
}

TEST(Transaction, T6_AnUnwantedTensorIsAnErrorUnlessIgnorable) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  std::vector<Sent> tensors = all_tensors(rank.plan, weights);
  tensors.push_back({{"rotary.inv_freq", DType::kF32, {2}}, std::vector<std::byte>(8)});
  ASSERT_TRUE(offer(rank, tensors).ok());
  rank.transaction->abort({}, false);
  tensors.push_back({{"adapter.weight", DType::kF32, {2}}, std::vector<std::byte>(8)});
  const Status status = offer(rank, tensors);
  EXPECT_THAT(status.message(), HasSubstr("adapter.weight"));
  EXPECT_THAT(status.message(), HasSubstr("wants"));
}

TEST(Transaction, T6_AnUndeclaredChangeOfDtypeOrShapeNamesBoth) {
  const Weights weights = toy_weights(toy_plan(), 1);
  for (bool dtype : {true, false}) {
    ToyRank rank;
    std::vector<Sent> tensors = all_tensors(rank.plan, weights);
    Sent& q = tensors[index_of(tensors, "layers.0.q.weight")];
    dtype ? void(q.spec.dtype = DType::kF16) : std::swap(q.spec.shape[0], q.spec.shape[1]);
    const Status status = offer(rank, tensors);
    EXPECT_THAT(status.message(), HasSubstr("layers.0.q.weight"));
    EXPECT_THAT(status.message(), HasSubstr(dtype ? "float16 [6,5]" : "bfloat16 [5,6]"));
    EXPECT_THAT(status.message(), HasSubstr("wants bfloat16 [6,5]"));
  }
}

TEST(Transaction, T6_AFrameIsRefusedBeforeAnyOfItsBytesIsTouched) {
  ToyRank rank;
  const Weights weights = toy_weights(rank.plan, 1);
  ASSERT_TRUE(update::testing::update(rank, kV1, weights).ok());
  std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 2));
  tensors[4].spec.name = "nobody.wants.this";
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  const Status status = send_frame(*rank.transaction, tensors, 64);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(rank.fence.open());
  EXPECT_EQ(rank.live(), rank.cold(weights));
  // The failure stays: nothing that comes later is applied (R1).
  EXPECT_EQ(rank.transaction->apply(0, tensors[0].bytes).message(), status.message());
  EXPECT_EQ(rank.transaction->end_of_stream().message(), status.message());
  EXPECT_EQ(rank.transaction->prepare({}).message(), status.message());
  rank.transaction->abort({Code::kAborted, "a peer failed too"}, false);
  EXPECT_EQ(rank.transaction->report().error.message(), status.message());
  EXPECT_EQ(rank.live(), rank.cold(weights));
}

TEST(Transaction, U2_ContentThatIsNotTheSourcesFailsPrepare) {
  ToyRank rank;
  const std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  const Digest truth = version_digest(tensors);
  for (size_t damaged = 0; damaged < tensors.size(); ++damaged) {
    if (tensors[damaged].bytes.empty()) {
      continue;
    }
    std::vector<Sent> sent = tensors;
    sent[damaged].bytes.back() ^= std::byte{0x80};
    ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
    ASSERT_TRUE(send_all(*rank.transaction, sent).ok());
    const Status status = rank.transaction->prepare(truth);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(truth.to_text()));
    rank.transaction->abort(status, false);
  }
}

TEST(Transaction, U2_TheDigestOfBeginHoldsTooAndNoDigestIsAnError) {
  ToyRank rank;
  const std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  ASSERT_EQ(rank.transaction->begin(kV2, Digest{}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok());
  EXPECT_EQ(rank.transaction->prepare(version_digest(tensors)).code(), Code::kCorrupt);
  rank.transaction->abort({}, false);
  ASSERT_EQ(rank.transaction->begin(kV2, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*rank.transaction, tensors).ok());
  EXPECT_THAT(rank.transaction->prepare({}).message(), HasSubstr("sent none"));
  rank.transaction->abort({}, false);
  ASSERT_TRUE(offer(rank, tensors, false).ok());
  EXPECT_FALSE(rank.transaction->report().digest_checked) << "off, and the report says so";
  rank.transaction->finish();
  EXPECT_EQ(rank.transaction->digest(), std::nullopt);
}

TEST(Transaction, R5_ALateFaultOfTheDeviceAborts) {
  ToyRank rank;
  Status fault(Code::kUnavailable, "device 3: write fault");
  TransactionOptions options;
  options.journal = rank.journal;
  options.synchronize = [&] { return fault; };
  auto transaction = std::move(Transaction::make(rank.plan, rank.memory.parameters(), rank.fence,
                                                 rank.raiser, options))
                         .take();
  const std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  ASSERT_EQ(transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*transaction, tensors).ok());
  EXPECT_THAT(transaction->prepare(version_digest(tensors)).message(), HasSubstr("device 3"));
  EXPECT_FALSE(transaction->prepared());
  transaction->abort(fault, false);
  fault = {};
  ASSERT_EQ(transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  ASSERT_TRUE(send_all(*transaction, tensors).ok());
  EXPECT_TRUE(transaction->prepare(version_digest(tensors)).ok());
}

TEST(Transaction, BytesOutOfOrderOrMissingAreNeverTakenForWhole) {
  ToyRank rank;
  const std::vector<Sent> tensors = all_tensors(rank.plan, toy_weights(rank.plan, 1));
  const FrameTensor frame{&tensors[0].spec, 0, tensors[0].bytes.size()};
  auto restart = [&] {
    rank.transaction->abort({}, false);
    return rank.transaction->begin(kV1, {}, true).kind == BeginKind::kReady &&
           rank.transaction->on_frame({&frame, 1}).ok();
  };
  ASSERT_TRUE(restart());
  EXPECT_EQ(rank.transaction->apply(2, tensors[0].bytes).code(), Code::kCorrupt);
  ASSERT_TRUE(restart());
  ASSERT_TRUE(rank.transaction->apply(0, std::span(tensors[0].bytes).first(9)).ok());
  EXPECT_EQ(rank.transaction->on_frame({&frame, 1}).code(), Code::kCorrupt);
  ASSERT_TRUE(restart());
  ASSERT_TRUE(rank.transaction->apply(0, std::span(tensors[0].bytes).first(9)).ok());
  EXPECT_EQ(rank.transaction->end_of_stream().code(), Code::kCorrupt);
  ASSERT_TRUE(restart());
  const FrameTensor lying{&tensors[0].spec, 0, 8};
  ASSERT_TRUE(rank.transaction->apply(0, tensors[0].bytes).ok());
  rank.transaction->abort({}, false);
  ASSERT_EQ(rank.transaction->begin(kV1, {}, true).kind, BeginKind::kReady);
  EXPECT_EQ(rank.transaction->on_frame({&lying, 1}).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace changeover::update
