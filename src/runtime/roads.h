// The one list of roads: which endpoint kind travels on which, on either end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <changeover/endpoint.h>
#include <changeover/publisher.h>

#include "os/clock.h"
#include "os/fd.h"
#include "transport/transport.h"

namespace changeover::runtime {

// The sending end of a road that takes ranks one by one.
struct SendEnd {
  std::unique_ptr<transport::SendRoad> road;
  // Hands the road a rank's data connection; `name` is the rank's, for errors. A peer attached
  // before under this index is replaced.
  std::function<Status(uint32_t peer, const std::string& name, os::Fd socket, Instant deadline)>
      attach;
  uint32_t peers_max = 0;  // Indices are below it.
};

// kInvalidArgument for an endpoint that no rank can dial.
Result<SendEnd> open_send_end(const PublisherOptions& options, const os::Clock& clock);

Result<std::unique_ptr<transport::ReceiveRoad>> open_receive_road(Endpoint::Kind kind,
                                                                  os::Fd socket,
                                                                  const std::string& publisher,
                                                                  const os::Clock& clock,
                                                                  Instant deadline);

// Rule M6: what the report says of the choice.
std::string road_name(Endpoint::Kind kind);
std::string road_reason(Endpoint::Kind kind);

}  // namespace changeover::runtime
