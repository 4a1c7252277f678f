// Reading a report's JSON, strictly: unknown keys are let be (a later release may add some), a
// missing or wrong one is named.
#pragma once

#include <string_view>

#include <changeover/report.h>

namespace changeover::runtime {

Result<UpdateReport> read_update_report(std::string_view json);

}  // namespace changeover::runtime
