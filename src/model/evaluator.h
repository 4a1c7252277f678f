// What the expressions and patterns of a model file mean under one config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <changeover/dtype.h>
#include <changeover/status.h>

#include "base/json.h"
#include "model/expression.h"
#include "model/model_file.h"

namespace changeover::model {

class Evaluator {
 public:
  // `config` is an object of a document that outlives the evaluator.
  explicit Evaluator(base::JsonValue config) : scope_(config) {}

  Scope& scope() { return scope_; }

  // None = true.
  Result<bool> holds(const std::optional<Expression>& when);
  Result<DType> dtype_of(const std::optional<DTypeRule>& rule, DType otherwise);
  // First and one past the last; at most kLoopMax of them.
  Result<std::pair<int64_t, int64_t>> range_of(const Loop& loop);
  Result<std::string> fill_in(const Pattern& pattern);

 private:
  Scope scope_;
};

}  // namespace changeover::model
