// The library's plan options out of the command line's.
#pragma once

#include <changeover/load_plan.h>

#include "cli/arguments.h"

namespace changeover::cli {

inline PlanOptions plan_options(const PlanArguments& arguments) {
  PlanOptions options;
  options.tp_rank = arguments.tp_rank;
  options.tp_size = arguments.tp_size;
  options.vocab_multiple = arguments.vocab_multiple;
  options.drop_segments = arguments.drop_segments;
  options.strip_prefixes = arguments.strip_prefixes;
  options.add_prefix = arguments.add_prefix;
  options.model_file = arguments.model_file;
  return options;
}

}  // namespace changeover::cli
