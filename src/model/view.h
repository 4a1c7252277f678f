// Arithmetic of strided views: how a model file's selections become offsets, extents and strides.
#pragma once

#include <cstdint>
#include <span>

#include <changeover/load_plan.h>
#include <changeover/status.h>

namespace changeover::model {

// All elements of a tensor of this shape, whose element count must be known to fit int64.
View whole_view(std::span<const int64_t> shape);

// The number of elements; REQUIRES a view that lies within a tensor.
int64_t elements_of(const View& view);

// Each changes the view in place; kInvalidArgument (nothing changed) if it does not fit the view.
// New order of the dimensions: dimension i is the old dimension order[i].
Status transpose(View& view, std::span<const int64_t> order);
// Keeps start, start + step, ... below stop.
Status slice(View& view, int64_t dim, int64_t start, int64_t stop, int64_t step);
// One dimension becomes two, `outer` x `inner`.
Status split(View& view, int64_t dim, int64_t outer, int64_t inner);
// Dimensions dim and dim + 1 become one.
Status merge(View& view, int64_t dim);
// Keeps one index of a dimension, and drops the dimension.
Status take(View& view, int64_t dim, int64_t index);

// Drops dimensions of extent 1 and joins neighbours that lie back to back in both views, which
// REQUIRES equal extents. The pairing of elements stays; fewer, longer runs are left.
void simplify(View& source, View& target);

// As above for one view whose order of elements does not matter: dimensions are also sorted.
// REQUIRES positive strides.
void normalize(View& view);

}  // namespace changeover::model
