#include "reference/admin_protocol.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"

namespace changeover::reference {
namespace {

constexpr std::array<std::pair<AdminRequest, std::string_view>, 5> kRequests = {{
    {AdminRequest::kStatus, "status"},
    {AdminRequest::kDigests, "digests"},
    {AdminRequest::kReport, "report"},
    {AdminRequest::kSteps, "steps"},
    {AdminRequest::kStop, "stop"},
}};

Status invalid(const std::string& what) {
  return {Code::kInvalidArgument, "request: " + what};
}

}  // namespace

std::string_view admin_request_name(AdminRequest request) {
  for (const auto& [value, name] : kRequests) {
    if (value == request) {
      return name;
    }
  }
  return "unknown";
}

Result<AdminRequest> parse_admin_request(std::string_view line) {
  if (line.size() > kAdminRequestBytesMax) {
    return invalid(fmt::format("{} bytes, at most {}", line.size(), kAdminRequestBytesMax));
  }
  auto document =
      base::JsonDocument::parse(line, {.bytes_max = kAdminRequestBytesMax, .depth_max = 4});
  if (!document.ok()) {
    return document.status().with_context("request");
  }
  const base::JsonValue root = document->root();
  if (!root.is(base::JsonKind::kObject)) {
    return invalid(
        fmt::format("{} where an object like {{\"format\":1,\"request\":\"status\"}} is "
                    "expected",
                    base::json_kind_name(root.kind())));
  }
  for (const base::JsonMember member : root.members()) {
    if (member.key != "format" && member.key != "request") {
      return invalid(fmt::format("unknown key {}", base::quoted(member.key)));
    }
  }
  const auto format = root.find("format");
  if (!format || format->integer() != 1) {
    return invalid("\"format\" is not 1, the only format there is");
  }
  const auto request = root.find("request");
  const auto name = request ? request->string() : std::nullopt;
  for (const auto& [value, known] : kRequests) {
    if (name == known) {
      return value;
    }
  }
  return invalid(fmt::format("\"request\" is {}; known are status, digests, report, steps, stop",
                             name ? base::quoted(*name) : "no string"));
}

}  // namespace changeover::reference
