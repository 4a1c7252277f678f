#include "model/view.h"

#include <algorithm>

#include <fmt/format.h>

namespace changeover::model {
namespace {

Status check_dim(const View& view, int64_t dim) {
  if (dim < 0 || dim >= static_cast<int64_t>(view.dims.size())) {
    return {Code::kInvalidArgument,
            fmt::format("there is no dimension {}, there are {}", dim, view.dims.size())};
  }
  return {};
}

// True if stepping over `outer` is the same as walking past the end of `inner`.
bool back_to_back(const View::Dim& outer, const View::Dim& inner) {
  int64_t length = 0;
  return !__builtin_mul_overflow(inner.extent, inner.stride, &length) && outer.stride == length;
}

}  // namespace

View whole_view(std::span<const int64_t> shape) {
  View view;
  int64_t stride = 1;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    view.dims.push_back({*extent, stride});
    stride *= empty ? 1 : *extent;  // The product of an empty shape's others may not fit.
  }
  std::reverse(view.dims.begin(), view.dims.end());
  return view;
}

int64_t elements_of(const View& view) {
  int64_t count = 1;
  for (const View::Dim& dim : view.dims) {
    count *= dim.extent;
  }
  return count;
}

Status transpose(View& view, std::span<const int64_t> order) {
  const size_t count = view.dims.size();
  std::vector<bool> seen(count, false);
  View result{view.offset, {}};
  for (const int64_t dim : order) {
    CHANGEOVER_TRY(check_dim(view, dim));
    if (seen[static_cast<size_t>(dim)]) {
      return {Code::kInvalidArgument, fmt::format("dimension {} stands twice in transpose", dim)};
    }
    seen[static_cast<size_t>(dim)] = true;
    result.dims.push_back(view.dims[static_cast<size_t>(dim)]);
  }
  if (order.size() != count) {
    return {Code::kInvalidArgument,
            fmt::format("transpose names {} of {} dimensions", order.size(), count)};
  }
  view = std::move(result);
  return {};
}

Status slice(View& view, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  CHANGEOVER_TRY(check_dim(view, dim));
  View::Dim& at = view.dims[static_cast<size_t>(dim)];
  if (start < 0 || stop < start || stop > at.extent || step < 1) {
    return {Code::kInvalidArgument, fmt::format("slice {}:{}:{} does not fit dimension {} of {}",
                                                start, stop, step, dim, at.extent)};
  }
  const int64_t length = stop - start;
  const int64_t kept = length / step + (length % step != 0 ? 1 : 0);
  // What is kept lies within the tensor, so neither product can overflow where it is used.
  view.offset += kept == 0 ? 0 : start * at.stride;
  at = {kept, kept > 1 ? at.stride * step : at.stride};
  return {};
}

Status split(View& view, int64_t dim, int64_t outer, int64_t inner) {
  CHANGEOVER_TRY(check_dim(view, dim));
  const View::Dim at = view.dims[static_cast<size_t>(dim)];
  int64_t product = 0;
  if (outer < 0 || inner < 0 || __builtin_mul_overflow(outer, inner, &product) ||
      product != at.extent) {
    return {Code::kInvalidArgument,
            fmt::format("{} x {} is not dimension {} of {}", outer, inner, dim, at.extent)};
  }
  if (view.dims.size() >= static_cast<size_t>(kViewDimsMax)) {
    return {Code::kInvalidArgument, fmt::format("more than {} dimensions", kViewDimsMax)};
  }
  const int64_t outer_stride = outer > 1 ? at.stride * inner : at.stride;
  view.dims[static_cast<size_t>(dim)] = {outer, outer_stride};
  view.dims.insert(view.dims.begin() + dim + 1, {inner, at.stride});
  return {};
}

Status merge(View& view, int64_t dim) {
  CHANGEOVER_TRY(check_dim(view, dim));
  CHANGEOVER_TRY(check_dim(view, dim + 1));
  const View::Dim outer = view.dims[static_cast<size_t>(dim)];
  const View::Dim inner = view.dims[static_cast<size_t>(dim) + 1];
  if (outer.extent > 1 && !back_to_back(outer, inner)) {
    return {Code::kInvalidArgument,
            fmt::format("dimensions {} and {} do not lie back to back", dim, dim + 1)};
  }
  view.dims[static_cast<size_t>(dim)] = {outer.extent * inner.extent, inner.stride};
  view.dims.erase(view.dims.begin() + dim + 1);
  return {};
}

Status take(View& view, int64_t dim, int64_t index) {
  CHANGEOVER_TRY(check_dim(view, dim));
  const View::Dim at = view.dims[static_cast<size_t>(dim)];
  if (index < 0 || index >= at.extent) {
    return {Code::kInvalidArgument,
            fmt::format("index {} does not fit dimension {} of {}", index, dim, at.extent)};
  }
  view.offset += index * at.stride;
  view.dims.erase(view.dims.begin() + dim);
  return {};
}

void simplify(View& source, View& target) {
  View a{source.offset, {}};
  View b{target.offset, {}};
  for (size_t i = 0; i < source.dims.size(); ++i) {
    const View::Dim from = source.dims[i];
    const View::Dim to = target.dims[i];
    if (from.extent == 0) {
      source.dims = {{0, 1}};
      target.dims = {{0, 1}};
      return;
    }
    if (from.extent == 1) {
      continue;
    }
    if (!a.dims.empty() && back_to_back(a.dims.back(), from) && back_to_back(b.dims.back(), to)) {
      a.dims.back() = {a.dims.back().extent * from.extent, from.stride};
      b.dims.back() = {b.dims.back().extent * to.extent, to.stride};
    } else {
      a.dims.push_back(from);
      b.dims.push_back(to);
    }
  }
  source = std::move(a);
  target = std::move(b);
}

void normalize(View& view) {
  std::sort(view.dims.begin(), view.dims.end(), [](const View::Dim& a, const View::Dim& b) {
    return a.stride != b.stride ? a.stride > b.stride : a.extent > b.extent;
  });
  View copy = view;
  simplify(view, copy);
}

}  // namespace changeover::model
