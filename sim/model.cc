#include "sim/world.h"

namespace changeover::sim {

namespace {

// Fused rows and a column shard, enough of both that an update takes several frames.
LoadPlan small_plan(int32_t rank) {
  LoadPlan plan;
  plan.tp_rank = rank;
  plan.tp_size = kEngineSize;
  plan.parameters = {{"qv", DType::kU16, {3, 4}}, {"o", DType::kU16, {3, 2}}};
  plan.sources = {{{"q", DType::kU16, {4, 4}}, {}},
                  {{"v", DType::kU16, {2, 4}}, {}},
                  {{"o", DType::kU16, {3, 4}}, {}}};
  const auto rows = [&](uint32_t source, int64_t count, int64_t first, const char* part) {
    const View from{rank * count * 4, {{count, 4}, {4, 1}}};
    const View to{first * 4, {{count, 4}, {4, 1}}};
    return Piece{source, 0, from, to, PieceOp::kCopy, part};
  };
  const View columns{rank * 2, {{3, 4}, {2, 1}}};
  const View whole{0, {{3, 2}, {2, 1}}};
  plan.pieces = {rows(0, 2, 0, "q"), rows(1, 1, 2, "v"),
                 Piece{2, 1, columns, whole, PieceOp::kCopy, ""}};
  return plan;
}

}  // namespace

Model::Model() {
  for (int32_t rank = 0; rank < kEngineSize; ++rank) {
    plans_.push_back(small_plan(rank));
  }
}

const Model::Version& Model::version(int64_t number) {
  const auto found = versions_.find(number);
  if (found != versions_.end()) {
    return found->second;
  }
  Version version;
  const auto weights = update::testing::toy_weights(plans_[0], static_cast<uint64_t>(number));
  version.tensors = update::testing::all_tensors(plans_[0], weights);
  version.digest = update::testing::version_digest(version.tensors);
  for (const LoadPlan& plan : plans_) {
    update::testing::Memory memory(plan);
    memory.cold_load(plan, weights);
    version.cold.push_back(memory.bytes());
  }
  return versions_.emplace(number, std::move(version)).first->second;
}

const std::vector<update::testing::Sent>& Model::tensors(int64_t number) {
  return version(number).tensors;
}
const Digest& Model::digest(int64_t number) {
  return version(number).digest;
}
const std::vector<std::byte>& Model::cold(int64_t number, int32_t rank) {
  return version(number).cold[static_cast<size_t>(rank)];
}

}  // namespace changeover::sim
