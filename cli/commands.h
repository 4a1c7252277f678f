// One function per subcommand. Each prints for people (or, with --json, for programs) on standard
// output, says errors on standard error, and returns the exit code.
#pragma once

#include "cli/arguments.h"

namespace changeover::cli {

int run(const PublishArguments& arguments);
int run(const ReceiveArguments& arguments);
int run(const InspectArguments& arguments);
int run(const ShowPlanArguments& arguments);
int run(const VerifyArguments& arguments);
int run(const DemoArguments& arguments);
int run(const BenchArguments& arguments);

}  // namespace changeover::cli
