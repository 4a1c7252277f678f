// An update of many small tensors allocates nothing per tensor, once the first one has run: here
// the 18,432 matrices of 48 layers of 128 experts.
#include <gtest/gtest.h>

#include "tests/count_allocations.h"
#include "update/toy_model_testing.h"
#include "update/transaction.h"

namespace changeover::update {
namespace {

using namespace testing;

constexpr int64_t kLayers = 48;
constexpr int64_t kExperts = 128;

// gate and up of an expert, one element each, side by side in w13; down in w2.
LoadPlan experts_plan() {
  LoadPlan plan;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    const auto w13 = static_cast<uint32_t>(plan.parameters.size());
    plan.parameters.push_back({prefix + "w13_weight", DType::kBF16, {kExperts, 2}});
    plan.parameters.push_back({prefix + "w2_weight", DType::kBF16, {kExperts, 1}});
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const std::string name = prefix + std::to_string(expert) + ".";
      for (const char* part : {"gate", "up", "down"}) {
        const bool down = part[0] == 'd';
        const int64_t at = down ? expert : 2 * expert + (part[0] == 'u' ? 1 : 0);
        plan.pieces.push_back({static_cast<uint32_t>(plan.sources.size()), w13 + (down ? 1 : 0),
                               box(0, {}), box(at, {}), PieceOp::kCopy, part});
        plan.sources.push_back({{name + part + "_proj.weight", DType::kBF16, {1, 1}}, {}});
      }
    }
  }
  return plan;
}

TEST(Allocations, R4_AnUpdateOfManyExpertsAllocatesNothingPerTensor) {
  ToyRank rank(Mode::kJournal, experts_plan());
  ASSERT_EQ(rank.plan.sources.size(), 18'432u);
  for (int64_t version = 1; version <= 3; ++version) {
    const Weights weights = toy_weights(rank.plan, static_cast<uint64_t>(version));
    const auto tensors = all_tensors(rank.plan, weights);
    std::vector<FrameTensor> frame;
    std::vector<std::byte> payload;
    for (const Sent& sent : tensors) {
      frame.push_back({&sent.spec, payload.size(), sent.bytes.size()});
      payload.insert(payload.end(), sent.bytes.begin(), sent.bytes.end());
    }
    const Digest digest = version_digest(tensors);
    allocations = 0;
    counting = true;
    bool ok = rank.transaction->begin({0, version}, {}, true).kind == BeginKind::kReady;
    ok = ok && rank.transaction->on_frame(frame).ok() && rank.transaction->apply(0, payload).ok() &&
         rank.transaction->end_of_stream().ok() && rank.transaction->prepare(digest).ok();
    counting = false;
    ASSERT_TRUE(ok);
    rank.transaction->finish();
    rank.fence.open_gate();
    EXPECT_EQ(rank.live(), rank.cold(weights));
    if (version > 1) {
      EXPECT_LT(allocations.load(), 10) << "update " << version;
    }
  }
}

}  // namespace
}  // namespace changeover::update
