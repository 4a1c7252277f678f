#include "model/part_layout.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "model/plan_limits.h"
#include "model/view.h"

namespace changeover::model {
namespace {

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

// Two dimensions that do not lie back to back become one all the same: in as many segments as the
// outer one counts.
Status merge_apart(int64_t dim, Selection& selection) {
  const View whole = selection.segments[0];
  const int64_t outer = whole.dims[static_cast<size_t>(dim)].extent;
  if (outer > kLoopMax) {
    return invalid(
        fmt::format("merge of dimension {}: {} segments, at most {}", dim, outer, kLoopMax));
  }
  selection.segments.clear();
  selection.dim = static_cast<size_t>(dim);
  for (int64_t i = 0; i < outer; ++i) {
    View segment = whole;
    CHANGEOVER_TRY(take(segment, dim, i));
    selection.segments.push_back(std::move(segment));
  }
  return {};
}

}  // namespace

std::vector<int64_t> Selection::extents() const {
  std::vector<int64_t> result;
  for (const View::Dim& at : segments[0].dims) {
    result.push_back(at.extent);
  }
  if (segments.size() > 1) {
    result[dim] *= static_cast<int64_t>(segments.size());
  }
  return result;
}

bool PartLayout::absent() const {
  return split_dim >= 0 && share.filled == 0 && elements_of(source.segments[0]) > 0;
}

Result<PartLayout> PartPlanner::lay_out(const Part& part, Role role, DType parameter_dtype,
                                        int64_t layer) {
  PartLayout layout;
  layout.part = &part;
  layout.op = part.op;
  CHANGEOVER_TRY_ASSIGN(layout.dtype, evaluator_.dtype_of(part.dtype, parameter_dtype));
  CHANGEOVER_TRY(select(part, role, layout));
  if (part.stack) {
    CHANGEOVER_TRY_ASSIGN(layout.stack, evaluator_.range_of(*part.stack));
    layout.extents.push_back(layout.stack.second - layout.stack.first);
  }
  const std::vector<int64_t> extents = layout.source.extents();
  layout.extents.insert(layout.extents.end(), extents.begin(), extents.end());
  if (role == Role::kExpert) {
    CHANGEOVER_TRY(place_experts(part, layer, layout));
  }
  CHANGEOVER_TRY(share_out(part, role, layout));
  return layout;
}

Status PartPlanner::select(const Part& part, Role role, PartLayout& layout) {
  for (const Expression& dim : part.shape) {
    CHANGEOVER_TRY_ASSIGN(const int64_t extent, dim.integer(evaluator_.scope()));
    if (extent < 0) {
      return invalid(fmt::format("{} = {}, a dimension is not negative", dim.text(), extent));
    }
    layout.source_shape.push_back(extent);
  }
  CHANGEOVER_TRY(element_count(layout.source_shape).status());
  View whole = whole_view(layout.source_shape);
  const bool of_all_experts = role == Role::kExpert && !part.stack;
  if (of_all_experts && whole.dims.size() == 3 && part.layout == Layout::kUndeclared) {
    return invalid(
        fmt::format("a source of {} matrices of {} x {} has no \"layout\": declare out_in or "
                    "in_out, extents cannot tell",
                    whole.dims[0].extent, whole.dims[1].extent, whole.dims[2].extent));
  }
  if (part.layout == Layout::kInOut) {
    if (whole.dims.size() != 3) {
      return invalid("layout in_out is for sources of three dimensions");
    }
    std::swap(whole.dims[1], whole.dims[2]);
  }
  layout.source.segments = {std::move(whole)};
  for (const Step& step : part.view) {
    CHANGEOVER_TRY(apply_step(step, &step == &part.view.back(), layout.source));
  }
  if (of_all_experts &&
      (layout.source.segments.size() > 1 || layout.source.segments[0].dims.empty())) {
    return invalid("the role expert needs one view, with experts in its first dimension");
  }
  return {};
}

Status PartPlanner::apply_step(const Step& step, bool last, Selection& selection) {
  View& view = selection.segments[0];
  std::vector<std::optional<int64_t>> values;
  for (const std::optional<Expression>& argument : step.arguments) {
    values.emplace_back();
    if (argument) {
      CHANGEOVER_TRY_ASSIGN(values.back(), argument->integer(evaluator_.scope()));
    }
  }
  switch (step.op) {
    case Step::Op::kTranspose:
      return transpose(view, step.order);
    case Step::Op::kSlice: {
      const bool exists = step.dim < static_cast<int64_t>(view.dims.size());
      const int64_t extent = exists ? view.dims[static_cast<size_t>(step.dim)].extent : 0;
      return slice(view, step.dim, values[0].value_or(0), values[1].value_or(extent),
                   values[2].value_or(1));
    }
    case Step::Op::kSplit:
      return split(view, step.dim, *values[0], *values[1]);
    case Step::Op::kMerge: {
      Status merged = merge(view, step.dim);
      const bool both = step.dim + 1 < static_cast<int64_t>(view.dims.size());
      if (!merged.ok() && both && last) {
        const int64_t outer = view.dims[static_cast<size_t>(step.dim)].extent;
        CHANGEOVER_TRY(evaluator_.scope().spend(static_cast<uint64_t>(outer)));
        return merge_apart(step.dim, selection);
      }
      return merged;
    }
    case Step::Op::kTake:
      return take(view, step.dim, *values[0]);
  }
  return {};
}

// Dimension 0 counts all experts of the model, and then those of this rank's group.
Status PartPlanner::place_experts(const Part& part, int64_t layer, PartLayout& layout) {
  const int64_t experts = layout.extents[0];
  if (experts == 0) {
    return {};
  }
  if (part.stack && layout.stack.first != 0) {
    return invalid("experts are counted from 0");
  }
  CHANGEOVER_TRY(evaluator_.scope().spend(static_cast<uint64_t>(experts)));
  CHANGEOVER_TRY_ASSIGN(ExpertSlots slots,
                        expert_slots(options_.placement, layer, experts, experts_.ep_size));
  layout.experts = std::move(slots[static_cast<size_t>(experts_.ep_rank)]);
  layout.extents[0] = static_cast<int64_t>(layout.experts.size());
  return {};
}

// Sets which dimension is dealt out, and this rank's share of it.
Status PartPlanner::share_out(const Part& part, Role role, PartLayout& layout) {
  if (role == Role::kColumn || role == Role::kVocab) {
    layout.split_dim = 0;
  } else if (role == Role::kRow) {
    layout.split_dim = 1;
  }
  if (part.split && part.split->dim) {
    layout.split_dim = *part.split->dim;
  }
  if (layout.split_dim < 0) {
    return {};
  }
  const auto dim = static_cast<size_t>(layout.split_dim);
  if (dim >= layout.extents.size()) {
    return invalid(
        fmt::format("dimension {} is dealt out, there are {}", dim, layout.extents.size()));
  }
  ShareRequest request;
  request.extent = layout.extents[dim];
  request.tp_rank = role == Role::kExpert ? experts_.tp_rank : options_.tp_rank;
  request.tp_size = role == Role::kExpert ? experts_.tp_size : options_.tp_size;
  std::string count_text = "units of dimension " + std::to_string(dim);
  if (part.view.empty() && dim >= layout.extents.size() - part.shape.size()) {
    count_text = part.shape[dim - (layout.extents.size() - part.shape.size())].text();
  }
  if (role == Role::kVocab) {
    request.unit = vocabulary_unit(options_.vocab_multiple, options_.tp_size);
    request.pad = true;
  } else if (part.split) {
    CHANGEOVER_TRY(read_units(*part.split, request, count_text));
  }
  request.count_text = count_text;
  request.size_text = role == Role::kExpert ? "the experts' tp_size" : "tp_size";
  CHANGEOVER_TRY_ASSIGN(layout.share, share_of(request));
  layout.extents[dim] = layout.share.extent;
  return {};
}

Status PartPlanner::read_units(const Split& split, ShareRequest& request, std::string& count_text) {
  Scope& scope = evaluator_.scope();
  request.replicate = split.replicate;
  request.pad = split.pad;
  if (split.unit) {
    CHANGEOVER_TRY_ASSIGN(request.unit, split.unit->integer(scope));
    count_text = fmt::format("({}) / ({})", count_text, split.unit->text());
  }
  if (!split.count) {
    return {};
  }
  count_text = split.count->text();
  CHANGEOVER_TRY_ASSIGN(const int64_t count, split.count->integer(scope));
  if (count < 1 || request.extent % count != 0) {
    return invalid(fmt::format("{} elements cannot be dealt out as {} = {} units", request.extent,
                               count_text, count));
  }
  if (split.unit && request.extent / count != request.unit) {
    return invalid(fmt::format("{} elements are not {} = {} units of {} = {}", request.extent,
                               count_text, count, split.unit->text(), request.unit));
  }
  request.unit = request.extent / count;
  return {};
}

}  // namespace changeover::model
