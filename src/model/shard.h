// Which share of a dimension one rank holds.
#pragma once

#include <cstdint>
#include <string_view>

#include <changeover/status.h>

namespace changeover::model {

struct Share {
  int64_t start = 0;   // First element of the whole dimension that this rank holds.
  int64_t filled = 0;  // Elements it holds.
  int64_t extent = 0;  // Elements its parameter has; extent - filled are padding at the end.
};

struct ShareRequest {
  int64_t extent = 0;  // Of the whole dimension.
  int64_t unit = 1;    // Elements that stay together; divides `extent` unless `pad`.
  bool replicate = false;
  bool pad = false;
  int32_t tp_rank = 0;
  int32_t tp_size = 1;
  std::string_view size_text = "tp_size";
  std::string_view count_text;  // How the config spells the number of units, for the message.
};

// kInvalidArgument names the count, both numbers and the sizes of tp that would fit.
Result<Share> share_of(const ShareRequest& request);

// Elements of one unit, so that dealing out padded units gives each rank an equal share of the
// vocabulary rounded up to a multiple of both `multiple` and tp_size.
int64_t vocabulary_unit(int64_t multiple, int32_t tp_size);

}  // namespace changeover::model
