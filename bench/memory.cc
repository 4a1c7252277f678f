// Peak memory of an update above what both sides held before it.
#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr uint64_t kBucketBytes = 64ull << 20;

Status measure(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.dense());
  FleetOptions options;
  options.bucket_bytes = kBucketBytes;
  CHANGEOVER_TRY_ASSIGN(const auto fleet, Fleet::start(*model, options));
  CHANGEOVER_TRY(fleet->publish(false).status());
  const auto limit = static_cast<double>(2 * kBucketBytes + model->tensor_bytes_max);
  for (int round = 0; round < context.rounds(3); ++round) {
    CHANGEOVER_TRY(fleet->watch_memory());
    CHANGEOVER_TRY(fleet->publish(false).status());
    CHANGEOVER_TRY_ASSIGN(const MemoryUse use, fleet->memory());
    recorder.add("peak_extra_publisher", static_cast<double>(use.publisher));
    recorder.add("peak_extra_rank", static_cast<double>(use.rank));
    recorder.add_limit("peak_extra_publisher", limit);
    recorder.add_limit("peak_extra_rank", limit);
  }
  return {};
}

constexpr std::string_view kTwoBuckets = "two buckets and the largest tensor";
constexpr FigureSpec kPeaks[] = {
    {"peak_extra_publisher", "B", false, kTwoBuckets, 1.0},
    {"peak_extra_rank", "B", false, kTwoBuckets, 1.0},
};
constexpr Family kFamilies[] = {{kPeaks, measure}};

}  // namespace

std::span<const Family> memory_families() {
  return kFamilies;
}

}  // namespace changeover::bench
