// Any bytes as a request line, and as the reply a rank gave to "digests".
#include <cstdlib>
#include <string_view>

#include "reference/admin_protocol.h"
#include "reference/digests_reply.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto request = reference::parse_admin_request(line);
  if (request.ok() && line.find(reference::admin_request_name(*request)) == line.npos &&
      line.find('\\') == line.npos) {
    std::abort();  // Understood something that is not there.
  }
  const auto reply = reference::parse_digests_reply(line);
  if (reply.ok() && (reply->plan_options.tp_rank < 0 ||
                     reply->plan_options.tp_rank >= reply->plan_options.tp_size)) {
    std::abort();
  }
  return 0;
}
