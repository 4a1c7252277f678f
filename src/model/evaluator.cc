#include "model/evaluator.h"

#include <fmt/format.h>

#include "model/plan_limits.h"

namespace changeover::model {

Result<bool> Evaluator::holds(const std::optional<Expression>& when) {
  return when ? when->boolean(scope_) : Result<bool>(true);
}

Result<DType> Evaluator::dtype_of(const std::optional<DTypeRule>& rule, DType otherwise) {
  if (!rule) {
    return otherwise;
  }
  CHANGEOVER_TRY_ASSIGN(const bool applies, holds(rule->when));
  return applies ? rule->dtype : otherwise;
}

Result<std::pair<int64_t, int64_t>> Evaluator::range_of(const Loop& loop) {
  int64_t from = 0;
  if (loop.from) {
    CHANGEOVER_TRY_ASSIGN(from, loop.from->integer(scope_));
  }
  CHANGEOVER_TRY_ASSIGN(const int64_t to, loop.to.integer(scope_));
  if (from < 0 || to < from || to - from > kLoopMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} = {}: runs from {} to {}, should count up at most {}",
                              loop.variable, loop.to.text(), from, to, kLoopMax));
  }
  CHANGEOVER_TRY(scope_.spend(static_cast<uint64_t>(to - from)));  // It will be walked.
  return std::pair<int64_t, int64_t>(from, to);
}

Result<std::string> Evaluator::fill_in(const Pattern& pattern) {
  CHANGEOVER_TRY(scope_.spend(1 + pattern.chunks.size()));
  std::string name;
  for (const Pattern::Chunk& chunk : pattern.chunks) {
    name += chunk.literal;
    if (!chunk.variable.empty()) {
      CHANGEOVER_TRY_ASSIGN(const Value value, scope_.get(chunk.variable));
      name += std::to_string(value.integer);
    }
  }
  return name;
}

}  // namespace changeover::model
