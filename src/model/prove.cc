// Proof that a plan's pieces tile its parameters (rule T4). The plan may come from a peer: every
// count is checked before it is used, and the work is bounded by the plan's own size and by
// kGranulesMax.
//
// A target view, its order of elements aside, is a set of equal runs. Where every view of a
// parameter is one run, sorting them proves the tiling. Elsewhere all offsets, strides and run
// lengths share a divisor, the granule: one bit per granule is enough. In normal plans a granule is
// a row or more, so that no proof walks over elements.
#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <vector>

#include <changeover/load_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/utf8.h"
#include "model/names.h"
#include "model/plan_limits.h"
#include "model/view.h"
#include "tensor/spec.h"

namespace changeover {
namespace {

using model::kGranulesMax;

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

// One view that fills part of a parameter: a piece, or padding.
struct Fill {
  View view;
  uint32_t index = 0;
  bool padding = false;
};

std::string name_of(const LoadPlan& plan, const Fill& fill) {
  if (fill.padding) {
    return fmt::format("padding {}", fill.index);
  }
  const Piece& piece = plan.pieces[fill.index];
  const std::string part =
      piece.part.empty() ? "" : fmt::format("{} of ", base::quoted(piece.part));
  return fmt::format("piece {} ({}{})", fill.index, part,
                     base::quoted(plan.sources[piece.source].spec.name));
}

std::string element_text(const TensorSpec& spec, uint64_t element) {
  std::vector<uint64_t> index(spec.shape.size());
  for (size_t i = spec.shape.size(); i-- > 0;) {
    const auto extent = static_cast<uint64_t>(std::max<int64_t>(spec.shape[i], 1));
    index[i] = element % extent;
    element /= extent;
  }
  return fmt::format("element [{}]", fmt::join(index, ", "));
}

Status check_view_within(const View& view, int64_t count) {
  if (view.dims.size() > static_cast<size_t>(kViewDimsMax)) {
    return invalid(fmt::format("{} dimensions, at most {}", view.dims.size(), kViewDimsMax));
  }
  bool empty = false;
  for (const View::Dim& dim : view.dims) {
    if (dim.extent < 0 || dim.stride < 1) {
      return invalid(
          fmt::format("extent {} and stride {}: extents are not negative, strides are "
                      "positive",
                      dim.extent, dim.stride));
    }
    empty = empty || dim.extent == 0;
  }
  auto last = static_cast<__int128>(view.offset);
  for (const View::Dim& dim : view.dims) {
    // Below `count` before each addition, so that the sum cannot overflow.
    if (!empty && last < count) {
      last += static_cast<__int128>(dim.extent - 1) * dim.stride;
    }
  }
  if (view.offset < 0 || (empty ? view.offset > count : last >= count)) {
    return invalid(
        fmt::format("reaches outside its tensor of {} elements (offset {})", count, view.offset));
  }
  return {};
}

Status check_spec(const TensorSpec& spec, int64_t* count) {
  CHANGEOVER_TRY(tensor::check_name(spec.name));
  if (!wire_dtype_name(spec.dtype)) {
    return invalid(
        fmt::format("{}: a plan has no {} tensors, the wire has no name for them; "
                    "declare the packed form (uint8)",
                    base::quoted(spec.name), dtype_name(spec.dtype)));
  }
  const Result<int64_t> elements = element_count(spec.shape);
  const Result<int64_t> bytes = byte_count(spec.dtype, spec.shape);
  if (!elements.ok() || !bytes.ok()) {
    return (elements.ok() ? bytes : elements).status().with_context(base::quoted(spec.name));
  }
  *count = *elements;
  return {};
}

bool is_castable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

Status check_op(const Piece& piece, DType from, DType to) {
  const bool fits =
      piece.op == PieceOp::kCopy ? from == to : from != to && is_castable(from) && is_castable(to);
  if (fits) {
    return {};
  }
  return invalid(
      fmt::format("{} from {} to {}: copy keeps the dtype, cast changes one of float32, "
                  "float16 and bfloat16 into another",
                  piece.op == PieceOp::kCopy ? "copy" : "cast", dtype_name(from), dtype_name(to)));
}

class Proof {
 public:
  explicit Proof(const LoadPlan& plan) : plan_(plan) {}

  Status run() {
    CHANGEOVER_TRY(check_header());
    CHANGEOVER_TRY(check_tensors());
    CHANGEOVER_TRY(collect_pieces());
    for (uint32_t i = 0; i < plan_.parameters.size(); ++i) {
      CHANGEOVER_TRY(tile(i));
    }
    return {};
  }

 private:
  Status check_header() const {
    if (plan_.tp_size < 1 || plan_.tp_size > model::kTpSizeMax || plan_.tp_rank < 0 ||
        plan_.tp_rank >= plan_.tp_size) {
      return invalid(fmt::format("tp_rank {} of tp_size {}: a rank is 0 .. size-1, a size 1 .. {}",
                                 plan_.tp_rank, plan_.tp_size, model::kTpSizeMax));
    }
    const ExpertShare& experts = plan_.experts;
    if (experts.ep_rank < 0 || experts.ep_rank >= experts.ep_size || experts.tp_rank < 0 ||
        experts.tp_rank >= experts.tp_size) {
      return invalid(fmt::format("experts of group {} of {}, tp_rank {} of {}: no such share",
                                 experts.ep_rank, experts.ep_size, experts.tp_rank,
                                 experts.tp_size));
    }
    if (plan_.generation > static_cast<uint64_t>(INT64_MAX)) {
      return invalid(fmt::format("generation {} does not fit an int64", plan_.generation));
    }
    if (!plan_.derived.empty()) {
      return invalid(fmt::format("derived value {}: plans with derived values cannot be used yet",
                                 base::quoted(plan_.derived[0].output)));
    }
    const size_t largest =
        std::max({plan_.parameters.size(), plan_.sources.size(), plan_.pieces.size(),
                  plan_.paddings.size(), plan_.ignorable.size()});
    if (largest > model::kPlanEntriesMax || plan_.parameters.empty()) {
      return invalid(
          fmt::format("{} entries of one kind and {} parameters: at most {} and at "
                      "least one parameter",
                      largest, plan_.parameters.size(), model::kPlanEntriesMax));
    }
    return {};
  }

  Status check_tensors() {
    std::unordered_set<std::string_view> names;
    parameter_counts_.resize(plan_.parameters.size());
    for (size_t i = 0; i < plan_.parameters.size(); ++i) {
      CHANGEOVER_TRY(check_spec(plan_.parameters[i], &parameter_counts_[i]));
      if (!names.insert(plan_.parameters[i].name).second) {
        return invalid(
            fmt::format("parameter {} stands twice", base::quoted(plan_.parameters[i].name)));
      }
    }
    source_counts_.resize(plan_.sources.size());
    for (size_t i = 0; i < plan_.sources.size(); ++i) {
      CHANGEOVER_TRY(check_spec(plan_.sources[i].spec, &source_counts_[i]));
    }
    return model::NameResolver::make(plan_).status();
  }

  Status check_piece(const Piece& piece) const {
    if (piece.source >= plan_.sources.size() || piece.parameter >= plan_.parameters.size()) {
      return invalid(fmt::format("source {} of {}, parameter {} of {}: no such one", piece.source,
                                 plan_.sources.size(), piece.parameter, plan_.parameters.size()));
    }
    const TensorSpec& source = plan_.sources[piece.source].spec;
    const TensorSpec& parameter = plan_.parameters[piece.parameter];
    CHANGEOVER_TRY(check_op(piece, source.dtype, parameter.dtype));
    const Status from = check_view_within(piece.source_view, source_counts_[piece.source]);
    CHANGEOVER_TRY(from.with_context(fmt::format("view of source {}", base::quoted(source.name))));
    const Status to = check_view_within(piece.target_view, parameter_counts_[piece.parameter]);
    CHANGEOVER_TRY(
        to.with_context(fmt::format("view of parameter {}", base::quoted(parameter.name))));
    const auto same_extent = [](const View::Dim& a, const View::Dim& b) {
      return a.extent == b.extent;
    };
    if (!std::equal(piece.source_view.dims.begin(), piece.source_view.dims.end(),
                    piece.target_view.dims.begin(), piece.target_view.dims.end(), same_extent)) {
      return invalid(fmt::format("from {} to {}: the two views differ in their extents",
                                 base::quoted(source.name), base::quoted(parameter.name)));
    }
    return {};
  }

  // Checks every view, and sorts the fills by parameter.
  Status collect_pieces() {
    fills_.resize(plan_.parameters.size());
    std::vector<bool> wanted(plan_.sources.size(), false);
    for (uint32_t i = 0; i < plan_.pieces.size(); ++i) {
      const Piece& piece = plan_.pieces[i];
      CHANGEOVER_TRY(check_piece(piece).with_context(fmt::format("piece {}", i)));
      wanted[piece.source] = true;
      fills_[piece.parameter].push_back({piece.target_view, i, false});
    }
    for (uint32_t i = 0; i < plan_.paddings.size(); ++i) {
      const Padding& padding = plan_.paddings[i];
      if (padding.parameter >= plan_.parameters.size()) {
        return invalid(fmt::format("padding {}: parameter {} of {}: no such one", i,
                                   padding.parameter, plan_.parameters.size()));
      }
      CHANGEOVER_TRY(check_view_within(padding.view, parameter_counts_[padding.parameter])
                         .with_context(fmt::format("padding {}", i)));
      fills_[padding.parameter].push_back({padding.view, i, true});
    }
    const auto unwanted = std::find(wanted.begin(), wanted.end(), false);
    if (unwanted != wanted.end()) {
      const auto& name = plan_.sources[static_cast<size_t>(unwanted - wanted.begin())].spec.name;
      return invalid(
          fmt::format("source {}: no piece wants it; list it as ignorable", base::quoted(name)));
    }
    return {};
  }

  Status overlap(uint32_t parameter, const Fill& a, const Fill& b, uint64_t element) const {
    const TensorSpec& spec = plan_.parameters[parameter];
    return invalid(fmt::format("parameter {}: {} and {} both fill {} (rule T4)",
                               base::quoted(spec.name), name_of(plan_, a), name_of(plan_, b),
                               element_text(spec, element)));
  }

  Status gap(uint32_t parameter, uint64_t element) const {
    const TensorSpec& spec = plan_.parameters[parameter];
    return invalid(
        fmt::format("parameter {}: nothing fills {} of {} (rule T4); add a piece or "
                    "declare padding",
                    base::quoted(spec.name), element_text(spec, element),
                    tensor::describe(spec.dtype, spec.shape)));
  }

  Status tile(uint32_t parameter) {
    std::vector<Fill>& fills = fills_[parameter];
    bool one_run_each = true;
    for (Fill& fill : fills) {
      model::normalize(fill.view);
      const auto& dims = fill.view.dims;
      for (size_t i = 1; i < dims.size(); ++i) {
        if (dims[i].stride == dims[i - 1].stride) {  // Indices (1, 0) and (0, 1) meet.
          return overlap(parameter, fill, fill,
                         static_cast<uint64_t>(fill.view.offset + dims[i].stride));
        }
      }
      one_run_each = one_run_each && (dims.empty() || (dims.size() == 1 && dims[0].stride == 1));
    }
    std::erase_if(fills, [](const Fill& fill) {
      return !fill.view.dims.empty() && fill.view.dims[0].extent == 0;
    });
    const auto count = static_cast<uint64_t>(parameter_counts_[parameter]);
    return one_run_each ? tile_runs(parameter, fills, count)
                        : tile_granules(parameter, fills, count);
  }

  Status tile_runs(uint32_t parameter, std::vector<Fill>& fills, uint64_t count) const {
    std::sort(fills.begin(), fills.end(),
              [](const Fill& a, const Fill& b) { return a.view.offset < b.view.offset; });
    uint64_t end = 0;
    for (size_t i = 0; i < fills.size(); ++i) {
      const auto start = static_cast<uint64_t>(fills[i].view.offset);
      if (start > end) {
        return gap(parameter, end);
      }
      if (start < end) {
        return overlap(parameter, fills[i - 1], fills[i], start);
      }
      const auto& dims = fills[i].view.dims;
      end += dims.empty() ? 1 : static_cast<uint64_t>(dims[0].extent);
    }
    return end < count ? gap(parameter, end) : Status();
  }

  static uint64_t granule_of(const std::vector<Fill>& fills, uint64_t count) {
    uint64_t granule = count;
    for (const Fill& fill : fills) {
      granule = std::gcd(granule, static_cast<uint64_t>(fill.view.offset));
      const auto& dims = fill.view.dims;
      const bool has_run = !dims.empty() && dims.back().stride == 1;
      for (const View::Dim& dim : dims) {
        granule =
            std::gcd(granule, static_cast<uint64_t>(dim.stride == 1 ? dim.extent : dim.stride));
      }
      granule = has_run ? granule : 1;
    }
    return granule;
  }

  Status tile_granules(uint32_t parameter, const std::vector<Fill>& fills, uint64_t count) {
    const uint64_t granule = granule_of(fills, count);
    const uint64_t bits = count / granule;
    if (bits > granules_left_) {
      return invalid(
          fmt::format("parameter {}: the proof needs {} bits, at most {} for a plan; "
                      "its pieces are too finely strided",
                      base::quoted(plan_.parameters[parameter].name), bits, kGranulesMax));
    }
    granules_left_ -= bits;
    std::vector<bool> filled(bits, false);
    for (const Fill& fill : fills) {
      const int64_t clash = mark(fill.view, granule, filled);
      if (clash >= 0) {
        return find_other(parameter, fills, fill, granule, static_cast<uint64_t>(clash));
      }
    }
    const auto hole = std::find(filled.begin(), filled.end(), false);
    return hole == filled.end()
               ? Status()
               : gap(parameter, static_cast<uint64_t>(hole - filled.begin()) * granule);
  }

  // Sets the view's granules; the first that was set already, or -1. Never more steps than bits,
  // since each sets one or ends the walk.
  static int64_t mark(const View& view, uint64_t granule, std::vector<bool>& filled) {
    std::vector<uint64_t> extents;
    std::vector<uint64_t> strides;
    for (const View::Dim& dim : view.dims) {
      const bool run = dim.stride == 1 && granule > 1;
      extents.push_back(static_cast<uint64_t>(dim.extent) / (run ? granule : 1));
      strides.push_back(run ? 1 : static_cast<uint64_t>(dim.stride) / granule);
    }
    std::vector<uint64_t> index(extents.size(), 0);
    uint64_t at = static_cast<uint64_t>(view.offset) / granule;
    while (true) {
      if (filled[at]) {
        return static_cast<int64_t>(at);
      }
      filled[at] = true;
      size_t dim = index.size();
      while (dim-- > 0) {
        at += strides[dim];
        if (++index[dim] < extents[dim]) {
          break;
        }
        at -= strides[dim] * extents[dim];
        index[dim] = 0;
      }
      if (dim == SIZE_MAX) {
        return -1;
      }
    }
  }

  // Which fill had the granule before `fill` came to it.
  Status find_other(uint32_t parameter, const std::vector<Fill>& fills, const Fill& fill,
                    uint64_t granule, uint64_t at) const {
    const Fill* other = &fill;  // Unless an earlier one has it, the view meets itself.
    for (const Fill& earlier : fills) {
      if (&earlier == &fill) {
        break;
      }
      if (contains(earlier.view, granule, at)) {
        other = &earlier;
        break;
      }
    }
    return overlap(parameter, *other, fill, at * granule);
  }

  static bool contains(const View& view, uint64_t granule, uint64_t at) {
    // Largest stride first: a greedy walk finds the index where dimensions do not interleave, which
    // a view that was marked without meeting itself satisfies or is only named less exactly.
    uint64_t rest = at * granule;
    if (rest < static_cast<uint64_t>(view.offset)) {
      return false;
    }
    rest -= static_cast<uint64_t>(view.offset);
    for (const View::Dim& dim : view.dims) {
      const auto stride = static_cast<uint64_t>(dim.stride);
      const uint64_t index = std::min(rest / stride, static_cast<uint64_t>(dim.extent) - 1);
      rest -= index * stride;
    }
    return rest == 0;
  }

  const LoadPlan& plan_;
  std::vector<int64_t> parameter_counts_;
  std::vector<int64_t> source_counts_;
  std::vector<std::vector<Fill>> fills_;
  uint64_t granules_left_ = kGranulesMax;
};

}  // namespace

Status prove_load_plan(const LoadPlan& plan) {
  return Proof(plan).run().with_context("load plan");
}

}  // namespace changeover
