// One part of one parameter, worked out for one rank: what is taken of a source, and how much of
// the parameter it fills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <changeover/experts.h>
#include <changeover/load_plan.h>
#include <changeover/status.h>

#include "model/evaluator.h"
#include "model/model_file.h"
#include "model/shard.h"

namespace changeover::model {

// Elements of a source: views of equal extents, one after another along one dimension. There are
// several where what belongs together does not lie at equal distances (heads of several groups).
struct Selection {
  std::vector<View> segments;
  size_t dim = 0;

  std::vector<int64_t> extents() const;
};

// Dimensions are those of the parameter.
struct PartLayout {
  const Part* part = nullptr;
  DType dtype = DType::kF32;
  PieceOp op = PieceOp::kCopy;
  std::vector<int64_t> source_shape;
  Selection source;              // Of a source; lacks dimension 0 where the part is stacked.
  std::vector<int64_t> extents;  // What the part takes of the parameter, padding included.
  int64_t split_dim = -1;        // -1: whole on every rank.
  Share share;
  std::vector<int32_t> experts;  // Role expert: which of them each slot of dimension 0 holds.
  std::pair<int64_t, int64_t> stack{0, 0};  // The loop's range, where the part is stacked.
  int64_t concat_offset = 0;

  // The rank has no use for the source, which is not empty itself.
  bool absent() const;
};

class PartPlanner {
 public:
  // Both outlive it. REQUIRES a resolved ExpertShare.
  PartPlanner(const PlanOptions& options, const ExpertShare& experts, Evaluator& evaluator)
      : options_(options), experts_(experts), evaluator_(evaluator) {}

  // `layer`: of the group around the part, -1 for none.
  Result<PartLayout> lay_out(const Part& part, Role role, DType parameter_dtype, int64_t layer);

 private:
  Status select(const Part& part, Role role, PartLayout& layout);
  Status apply_step(const Step& step, bool last, Selection& selection);
  Status place_experts(const Part& part, int64_t layer, PartLayout& layout);
  Status share_out(const Part& part, Role role, PartLayout& layout);
  Status read_units(const Split& split, ShareRequest& request, std::string& count_text);

  const PlanOptions& options_;
  const ExpertShare& experts_;
  Evaluator& evaluator_;
};

}  // namespace changeover::model
