#include "model/shard.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <fmt/format.h>

namespace changeover::model {
namespace {

std::string divisors_of(int64_t count) {
  constexpr int kListedMax = 8;
  std::string text;
  int listed = 0;
  for (int64_t divisor = 1; divisor <= std::min<int64_t>(count, 1024); ++divisor) {
    if (count % divisor == 0 && listed++ < kListedMax) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", divisor);
    }
  }
  return text + (listed > kListedMax ? ", ..." : "");
}

}  // namespace

Result<Share> share_of(const ShareRequest& request) {
  const int64_t tp = request.tp_size;
  const int64_t rank = request.tp_rank;
  const int64_t unit = request.unit;
  if (unit < 1 || (request.extent % unit != 0 && !request.pad)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} elements are no whole units of {}", request.extent, unit));
  }
  const int64_t count = request.extent / unit + (request.extent % unit != 0 ? 1 : 0);
  if (request.pad) {
    const int64_t per_rank = count / tp + (count % tp != 0 ? 1 : 0);
    Share share;
    // At most one unit per rank more than there is: with tp and unit bounded by their callers
    // only a hostile config comes near the limit.
    int64_t end = 0;
    if (__builtin_mul_overflow(per_rank, unit, &share.extent) ||
        __builtin_mul_overflow(share.extent, tp, &end)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} units of {} do not fit 64 bits", count, unit));
    }
    share.start = std::min(rank * share.extent, request.extent);
    share.filled = std::min(share.extent, request.extent - share.start);
    return share;
  }
  if (count % tp == 0) {
    const int64_t extent = count / tp * unit;
    return Share{rank * extent, extent, extent};
  }
  if (request.replicate && count > 0 && tp % count == 0) {
    return Share{rank / (tp / count) * unit, unit, unit};
  }
  return Status(Code::kInvalidArgument,
                fmt::format("{} {} does not divide {} = {}; choose {} of {}{}", request.size_text,
                            tp, request.count_text, count,
                            request.size_text == "tp_size" ? "a tp_size" : request.size_text,
                            divisors_of(count),
                            request.replicate ? fmt::format(" or a multiple of {}", count) : ""));
}

int64_t vocabulary_unit(int64_t multiple, int32_t tp_size) {
  return std::lcm(multiple, static_cast<int64_t>(tp_size)) / tp_size;
}

}  // namespace changeover::model
