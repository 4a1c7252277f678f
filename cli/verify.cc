// changeover verify: is what a rank or a folder holds what a cold load would give it?
#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include <changeover/verify.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/plan_options.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

constexpr size_t kRowsMax = 10;  // Of a table: what follows it is the answer.

std::string version_text(const VerifyReport& report) {
  return report.version ? fmt::format(", version {}", report.version->version) : std::string();
}

void print_report(const VerifyReport& report, const std::string& model) {
  if (report.same()) {
    emit("{} {}{}: {} parameters, byte for byte those of a cold load of {}\n",
         coloured("same", Colour::kGreen, stdout), printable(report.subject), version_text(report),
         report.parameters_compared, model);
  } else {
    Table table({"parameter", "held", "expected", "detail"});
    const size_t shown = std::min(report.differences.size(), kRowsMax);
    for (const VerifyDifference& difference : std::span(report.differences).first(shown)) {
      table.add({printable(difference.parameter),
                 difference.held ? difference.held->to_text() : "-",
                 difference.expected ? difference.expected->to_text() : "-",
                 printable(difference.detail)});
    }
    const size_t hidden = report.differences.size() - shown;
    emit("{}{}{} {}{}: {} of {} parameters are not those of a cold load of {}\n", table.to_string(),
         hidden == 0 ? "" : fmt::format("and {} more (--json lists all)\n", hidden),
         coloured("differs", Colour::kRed, stdout), printable(report.subject), version_text(report),
         report.differences.size(), report.parameters_compared, model);
  }
  if (report.fenced) {
    emit("the rank does not serve: {}\n", printable(report.fence_reason));
  }
}

}  // namespace

int run(const VerifyArguments& arguments) {
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(arguments.wait_seconds));
  const auto options = plan_options(arguments.plan);
  if (!options.ok()) {
    return fail(options.status(), arguments.json);
  }
  const auto report = arguments.rank.empty()
                          ? verify_folder(arguments.folder, arguments.model, *options)
                          : verify_rank(arguments.rank, arguments.model, timeout);
  if (!report.ok()) {
    return fail(report.status(), arguments.json);
  }
  if (arguments.json) {
    emit("{}\n", verify_report_to_json(*report));
  } else {
    print_report(*report, arguments.model);
  }
  return report->same() ? kExitOk : kExitFailed;
}

}  // namespace changeover::cli
