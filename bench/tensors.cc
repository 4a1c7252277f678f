// What many small tensors cost: 18,867 of them, as a mixture of experts has.
#include <string_view>

#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr uint64_t kTensors = 18867;
constexpr uint64_t kTensorBytes = 64;

Status measure_per_tensor(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.even(kTensors, kTensorBytes));
  CHANGEOVER_TRY_ASSIGN(const auto fleet, Fleet::start(*model, {}));
  CHANGEOVER_TRY_ASSIGN(const auto first, fleet->publish(false));
  recorder.add("per_tensor_first", first.seconds * 1e6 / kTensors);
  for (int round = 0; round < context.rounds(21); ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto report, fleet->publish(false));
    recorder.add("per_tensor", report.seconds * 1e6 / kTensors);
  }
  return {};
}

// In turns with the dense model, each to a rank of its own.
Status measure_experts(const Context& context, Recorder& recorder) {
  CHANGEOVER_TRY_ASSIGN(const Model* dense, context.models.dense());
  CHANGEOVER_TRY_ASSIGN(const Model* experts, context.models.experts());
  CHANGEOVER_TRY_ASSIGN(const auto both, Fleet::start_two(*experts, {}, *dense, {}));
  CHANGEOVER_TRY_ASSIGN(const auto first, both.first->publish(false));
  recorder.add("moe_1to1_first", static_cast<double>(experts->bytes) / first.seconds * 1e-9);
  CHANGEOVER_TRY(both.second->publish(false).status());
  for (int round = 0; round < context.rounds(7); ++round) {
    CHANGEOVER_TRY_ASSIGN(const auto limit, both.second->publish(false));
    const double rate = static_cast<double>(dense->bytes) / limit.seconds * 1e-9;
    recorder.add_limit("moe_1to1", rate);
    recorder.add_limit("moe_1to1_first", rate);
    CHANGEOVER_TRY_ASSIGN(const auto report, both.first->publish(false));
    recorder.add("moe_1to1", static_cast<double>(experts->bytes) / report.seconds * 1e-9);
  }
  return {};
}

constexpr FigureSpec kPerTensor[] = {
    {"per_tensor", "us", false, "", 1.5},
    {"per_tensor_first", "us", false, "", {}},
};
constexpr FigureSpec kExperts[] = {
    {"moe_1to1", "GB/s", true, "the dense model over the same road", 0.85},
    {"moe_1to1_first", "GB/s", true, "the dense model over the same road", {}},
};
constexpr Family kFamilies[] = {{kPerTensor, measure_per_tensor}, {kExperts, measure_experts}};

}  // namespace

std::span<const Family> tensor_families() {
  return kFamilies;
}

}  // namespace changeover::bench
