// The library's plan options out of the command line's.
#pragma once

#include <changeover/load_plan.h>
#include <changeover/status.h>

#include "cli/arguments.h"

namespace changeover::cli {

// Reads the placement's file, where one is given.
Result<PlanOptions> plan_options(const PlanArguments& arguments);

}  // namespace changeover::cli
