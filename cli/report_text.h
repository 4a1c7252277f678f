// An update's report as text for people.
#pragma once

#include <string>

#include <changeover/report.h>

namespace changeover::cli {

// A table of the ranks and one closing line.
std::string report_text(const UpdateReport& report);
std::string version_text(const std::optional<VersionStamp>& version);  // "7", "7 of epoch 1", "-"

}  // namespace changeover::cli
