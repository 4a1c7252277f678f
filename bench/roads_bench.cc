// The bare roads beside their limits, in one run: roads_bench [BYTES [ROUNDS]]. Prints JSON.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/limits.h"
#include "os/clock.h"
#include "os/socket.h"
#include "transport/shm/shm_road.h"
#include "transport/tcp/tcp_road.h"

namespace {

using namespace changeover;
using namespace changeover::transport;

const os::SystemClock kClock;

Instant soon() {
  return kClock.now() + std::chrono::seconds(120);
}

Status receive_whole(ReceiveRoad& road, uint64_t id, std::span<std::byte> target) {
  CHANGEOVER_TRY(road.open_stream(id));
  while (!target.empty()) {
    CHANGEOVER_TRY_ASSIGN(const Run run,
                          road.receive(Part::kPayload, target.size(), target, soon()));
    if (run.data != target.data()) {
      std::memcpy(target.data(), run.data, run.bytes);
    }
    CHANGEOVER_TRY(road.release(run));
    target = target.subspan(run.bytes);
  }
  return {};
}

Result<double> time_road(SendRoad& sender, std::span<const std::byte> source,
                         const std::function<Result<std::unique_ptr<ReceiveRoad>>()>& open) {
  std::unique_ptr<ReceiveRoad> reader;  // the child's
  const std::vector<uint32_t> peers = {0};
  return bench::time_two_processes(
      source.size(), 2,
      [&](int pass) {
        CHANGEOVER_TRY(sender.open_stream(peers, pass + 1));
        CHANGEOVER_TRY(sender.send(Part::kPayload, source, soon()));
        return sender.flush(soon());
      },
      [&](int pass, std::span<std::byte> target) {
        if (reader == nullptr) {
          CHANGEOVER_TRY_ASSIGN(reader, open());
        }
        return receive_whole(*reader, pass + 1, target);
      });
}

Result<double> time_shm(std::span<const std::byte> source) {
  CHANGEOVER_TRY_ASSIGN(const auto sender, ShmSendRoad::create({}, kClock));
  CHANGEOVER_TRY_ASSIGN(auto sockets, os::socket_pair());
  CHANGEOVER_TRY(sender->attach(0, "reader", std::move(sockets.first), soon()));
  return time_road(*sender, source, [&]() -> Result<std::unique_ptr<ReceiveRoad>> {
    CHANGEOVER_TRY_ASSIGN(
        auto road, ShmReceiveRoad::create(std::move(sockets.second), "publisher", kClock, soon()));
    return std::unique_ptr<ReceiveRoad>(std::move(road));
  });
}

Result<double> time_tcp(std::span<const std::byte> source) {
  CHANGEOVER_TRY_ASSIGN(const os::Fd listener, os::listen_tcp("127.0.0.1", 0));
  CHANGEOVER_TRY_ASSIGN(const uint16_t port, os::local_port(listener));
  CHANGEOVER_TRY_ASSIGN(os::Fd reader, os::dial_tcp("127.0.0.1", port, kClock, soon()));
  CHANGEOVER_TRY_ASSIGN(os::Fd writer, os::accept_connection(listener, kClock, soon()));
  CHANGEOVER_TRY(os::tune_tcp(writer));
  TcpSendRoad sender({}, kClock);
  CHANGEOVER_TRY(sender.attach(0, "reader", std::move(writer)));
  return time_road(sender, source, [&]() -> Result<std::unique_ptr<ReceiveRoad>> {
    CHANGEOVER_TRY_ASSIGN(auto road,
                          TcpReceiveRoad::create(std::move(reader), "publisher", kClock));
    return std::unique_ptr<ReceiveRoad>(std::move(road));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'190'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  std::vector<std::byte> source(bytes, std::byte{3});
  using Measure = Result<double> (*)(std::span<const std::byte>);
  const std::pair<const char*, Measure> measures[] = {
      {"shm_copy_limit", bench::shm_copy_limit},
      {"shm_road", time_shm},
      {"tcp_write_read_limit", bench::tcp_write_read_limit},
      {"tcp_road", time_tcp}};
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [name, measure] : measures) {
      const Result<double> seconds = measure(source);
      if (!seconds.ok()) {
        fmt::print(stderr, "{}: {}\n", name, seconds.status().to_string());
        return 1;
      }
      fmt::print("{{\"name\":\"{}\",\"bytes\":{},\"seconds\":{:.4f},\"gb_per_s\":{:.2f}}}\n", name,
                 bytes, *seconds, static_cast<double>(bytes) / 1e9 / *seconds);
    }
  }
  return 0;
}
