#include "transport/send_peers.h"

#include <fmt/format.h>

namespace changeover::transport {

void PeerFailures::start_stream() {
  failures_.clear();
  last_ = "none was given";
}

void PeerFailures::add(uint32_t peer, Status why) {
  last_ = why.message();
  failures_.push_back({peer, std::move(why)});
}

Status check_stream_id(uint64_t next, uint64_t last) {
  return next > last ? Status()
                     : Status(Code::kInvalidArgument,
                              fmt::format("stream {} after stream {}: ids must grow", next, last));
}

Status nobody_left(const std::string& last_failure) {
  return {Code::kUnavailable,
          fmt::format("no rank is left to send to; the last to go: {}", last_failure)};
}

}  // namespace changeover::transport
