#include "runtime/roads.h"

#include <utility>

#include "transport/file/file_road.h"
#include "transport/shm/shm_road.h"
#include "transport/tcp/tcp_road.h"

namespace changeover::runtime {

Result<SendEnd> open_send_end(const PublisherOptions& options, const os::Clock& clock) {
  const auto stall = options.deadlines.stall;
  if (options.endpoint.kind == Endpoint::Kind::kTcp) {
    auto road = std::make_unique<transport::TcpSendRoad>(transport::TcpSendOptions{stall}, clock);
    auto* tcp = road.get();
    return SendEnd{std::move(road),
                   [tcp](uint32_t peer, const std::string& name, os::Fd socket, Instant) {
                     return tcp->attach(peer, name, std::move(socket));
                   },
                   65536};
  }
  if (options.endpoint.kind == Endpoint::Kind::kShm) {
    CHANGEOVER_TRY_ASSIGN(auto road,
                          transport::ShmSendRoad::create(
                              {options.ring_slots, options.ring_slot_bytes, stall}, clock));
    auto* shm = road.get();
    return SendEnd{std::move(road),
                   [shm](uint32_t peer, const std::string& name, os::Fd socket, Instant deadline) {
                     return shm->attach(peer, name, std::move(socket), deadline);
                   },
                   transport::kShmReadersMax};
  }
  return Status(Code::kInvalidArgument, options.endpoint.to_string() +
                                            ": a publisher listens on tcp:HOST:PORT or shm:NAME");
}

Result<std::unique_ptr<transport::ReceiveRoad>> open_receive_road(Endpoint::Kind kind,
                                                                  os::Fd socket,
                                                                  const std::string& publisher,
                                                                  const os::Clock& clock,
                                                                  Instant deadline) {
  if (kind == Endpoint::Kind::kShm) {
    CHANGEOVER_TRY_ASSIGN(auto road, transport::ShmReceiveRoad::create(std::move(socket), publisher,
                                                                       clock, deadline));
    return std::unique_ptr<transport::ReceiveRoad>(std::move(road));
  }
  CHANGEOVER_TRY_ASSIGN(auto road,
                        transport::TcpReceiveRoad::create(std::move(socket), publisher, clock));
  return std::unique_ptr<transport::ReceiveRoad>(std::move(road));
}

std::string road_name(Endpoint::Kind kind) {
  switch (kind) {
    case Endpoint::Kind::kShm:
      return "shm";
    case Endpoint::Kind::kFile:
      return "file";
    default:
      return "tcp";
  }
}

std::string road_reason(Endpoint::Kind kind) {
  switch (kind) {
    case Endpoint::Kind::kShm:
      return "the endpoint names shm: publisher and rank share a host";
    case Endpoint::Kind::kFile:
      return "the endpoint names a recorded stream";
    default:
      return "the endpoint names tcp; on one host shm:NAME would be faster";
  }
}

}  // namespace changeover::runtime
