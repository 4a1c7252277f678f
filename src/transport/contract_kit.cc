#include "transport/contract_kit.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/socket.h"
#include "transport/faulty/faulty_road.h"
#include "transport/file/file_road.h"
#include "transport/shm/shm_road.h"
#include "transport/tcp/tcp_road.h"

namespace changeover::transport {

namespace {

const os::SystemClock kClock;  // stateless; outlives the readers, which may outlive the kit
const std::string kPublisher = "the test's publisher";

std::string name_of(uint32_t reader) {
  return "reader/" + std::to_string(reader);
}

Result<std::pair<os::Fd, os::Fd>> connect_tcp(const std::string& host) {
  const os::SystemClock clock;
  CHANGEOVER_TRY_ASSIGN(const os::Fd listener, os::listen_tcp(host, 0));
  CHANGEOVER_TRY_ASSIGN(const uint16_t port, os::local_port(listener));
  CHANGEOVER_TRY_ASSIGN(os::Fd ours, os::dial_tcp(host, port, clock, in(std::chrono::seconds(5))));
  CHANGEOVER_TRY_ASSIGN(os::Fd theirs,
                        os::accept_connection(listener, clock, in(std::chrono::seconds(5))));
  return std::pair(std::move(ours), std::move(theirs));
}

}  // namespace

Instant in(std::chrono::nanoseconds duration) {
  return os::SystemClock().now() + duration;
}

Result<std::unique_ptr<Kit>> Kit::create(const KitOptions& options) {
  std::unique_ptr<Kit> kit(new Kit(options));
  CHANGEOVER_TRY(kit->make_sender());
  kit->reader_ends_.resize(options.readers);
  for (uint32_t i = 0; i < options.readers; ++i) {
    kit->all_.push_back(i);
    CHANGEOVER_TRY(kit->attach(i));
  }
  return kit;
}

Kit::~Kit() {
  if (!path_.empty()) {
    ::unlink(path_.c_str());
  }
}

Status Kit::make_sender() {
  if (options_.road == RoadKind::kFile) {
    char path[] = "/tmp/changeover-road-XXXXXX";
    os::Fd(::mkstemp(path)).reset();
    path_ = path;
    auto road = std::make_unique<FileSendRoad>(path_);
    finish_ = [raw = road.get()] { return raw->finish(); };
    sender_ = std::move(road);
  } else if (options_.road == RoadKind::kShm) {
    ShmSendOptions shm{options_.slots, options_.slot_bytes, options_.stall_limit};
    CHANGEOVER_TRY_ASSIGN(std::unique_ptr<ShmSendRoad> road, ShmSendRoad::create(shm, kClock));
    attach_ = [raw = road.get()](uint32_t i, os::Fd end) {
      return raw->attach(i, name_of(i), std::move(end), in(std::chrono::seconds(5)));
    };
    sender_ = std::move(road);
  } else {
    auto road = std::make_unique<TcpSendRoad>(TcpSendOptions{options_.stall_limit}, kClock);
    attach_ = [raw = road.get()](uint32_t i, os::Fd end) {
      return raw->attach(i, name_of(i), std::move(end));
    };
    sender_ = std::move(road);
  }
  if (options_.faulty) {
    sender_ = std::make_unique<FaultySendRoad>(std::move(sender_), FaultPlan{}, kClock);
  }
  return {};
}

Status Kit::attach(uint32_t i) {
  if (options_.road == RoadKind::kFile) {
    return {};
  }
  CHANGEOVER_TRY_ASSIGN(auto ends, options_.road == RoadKind::kShm   ? os::socket_pair()
                                   : options_.road == RoadKind::kTcp ? connect_tcp("127.0.0.1")
                                                                     : connect_tcp("::1"));
  reader_ends_[i] = std::move(ends.first);
  return attach_(i, std::move(ends.second));
}

Status Kit::finish() {
  return finish_ ? finish_() : Status();
}

void Kit::become_reader(uint32_t i) {
  sender_.reset();
  for (uint32_t other = 0; other < reader_ends_.size(); ++other) {
    if (other != i) {
      reader_ends_[other].reset();
    }
  }
}

Result<std::unique_ptr<ReceiveRoad>> Kit::open_reader(uint32_t i) {
  std::unique_ptr<ReceiveRoad> reader;
  if (options_.road == RoadKind::kFile) {
    CHANGEOVER_TRY_ASSIGN(reader, FileReceiveRoad::create(path_));
  } else if (options_.road == RoadKind::kShm) {
    CHANGEOVER_TRY_ASSIGN(reader, ShmReceiveRoad::create(std::move(reader_ends_[i]), kPublisher,
                                                         kClock, in(std::chrono::seconds(5))));
  } else {
    CHANGEOVER_TRY_ASSIGN(reader,
                          TcpReceiveRoad::create(std::move(reader_ends_[i]), kPublisher, kClock));
  }
  if (options_.faulty) {
    CHANGEOVER_TRY_ASSIGN(reader,
                          FaultyReceiveRoad::create(std::move(reader), FaultPlan{}, kClock));
  }
  return reader;
}

std::byte pattern(uint64_t seed, uint64_t position) {
  return static_cast<std::byte>(position * 131 + (position >> 8) * 7 + (position >> 16) * 29 +
                                seed * 17);
}

std::vector<std::byte> pattern_bytes(uint64_t seed, uint64_t from, uint64_t bytes) {
  std::vector<std::byte> all(bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    all[i] = pattern(seed, from + i);
  }
  return all;
}

std::vector<uint64_t> random_parts(uint64_t seed, uint32_t frames, uint64_t bytes_max) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> parts;
  for (uint32_t i = 0; i < frames; ++i) {
    parts.push_back(32);
    parts.push_back(random() % 4 == 0 ? 0 : random() % 3000);
    const uint64_t kind = random() % 4;
    parts.push_back(kind == 0 ? 0 : kind == 1 ? 1 + random() % 100 : 1 + random() % bytes_max);
  }
  return parts;
}

uint64_t total_bytes(const std::vector<uint64_t>& parts) {
  uint64_t total = 0;
  for (const uint64_t part : parts) {
    total += part;
  }
  return total;
}

Part part_at(size_t i) {
  return i % 3 == 0 ? Part::kHeader : i % 3 == 1 ? Part::kMetadata : Part::kPayload;
}

namespace {

Status lend_part(SendRoad& road, Part part, uint64_t seed, uint64_t position, uint64_t bytes,
                 std::chrono::nanoseconds limit) {
  while (bytes > 0) {
    CHANGEOVER_TRY_ASSIGN(const std::span<std::byte> room, road.lend(part, bytes, in(limit)));
    if (room.empty() || room.size() > bytes) {
      return {Code::kCorrupt, fmt::format("lent {} bytes of {}", room.size(), bytes)};
    }
    for (size_t i = 0; i < room.size(); ++i) {
      room[i] = pattern(seed, position + i);
    }
    CHANGEOVER_TRY(road.commit(room.size()));
    position += room.size();
    bytes -= room.size();
  }
  return {};
}

}  // namespace

Status send_parts(SendRoad& road, uint64_t seed, const std::vector<uint64_t>& parts,
                  std::chrono::nanoseconds limit, bool lend) {
  uint64_t position = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (lend && i % 2 == 0) {
      CHANGEOVER_TRY(lend_part(road, part_at(i), seed, position, parts[i], limit));
    } else if (parts[i] > 0) {
      CHANGEOVER_TRY(road.send(part_at(i), pattern_bytes(seed, position, parts[i]), in(limit)));
    }
    position += parts[i];
  }
  return road.flush(in(limit));
}

Status receive_parts(ReceiveRoad& road, uint64_t seed, const std::vector<uint64_t>& parts,
                     std::chrono::nanoseconds limit, bool into) {
  constexpr std::byte kCanary{0xa5};
  std::vector<std::byte> memory;
  uint64_t position = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    uint64_t left = parts[i];
    while (left > 0) {
      memory.assign(into && part_at(i) == Part::kPayload ? left + 1 : 0, kCanary);
      const std::span<std::byte> offered =
          memory.empty() ? std::span<std::byte>() : std::span(memory).first(left);
      CHANGEOVER_TRY_ASSIGN(const Run run, road.receive(part_at(i), left, offered, in(limit)));
      if (run.bytes == 0 || run.bytes > left) {
        return {Code::kCorrupt, fmt::format("a run of {} bytes, {} were left", run.bytes, left)};
      }
      for (uint64_t k = 0; k < run.bytes; ++k) {
        if (run.data[k] != pattern(seed, position + k)) {
          return {Code::kCorrupt, fmt::format("byte {} is wrong", position + k)};
        }
      }
      if (!memory.empty() && memory.back() != kCanary) {
        return {Code::kCorrupt, "written past the memory that was offered"};
      }
      CHANGEOVER_TRY(road.release(run));
      position += run.bytes;
      left -= run.bytes;
    }
  }
  return {};
}

}  // namespace changeover::transport
