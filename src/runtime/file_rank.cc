#include "runtime/file_rank.h"

#include <algorithm>
#include <array>
#include <utility>

#include "os/limits.h"
#include "protocol/stream_receiver.h"
#include "protocol/transaction_sink.h"
#include "runtime/callback.h"
#include "runtime/commit_hook.h"
#include "runtime/roads.h"
#include "runtime/stream_part.h"
#include "transport/file/file_road.h"
#include "wire/header.h"

namespace changeover::runtime {
namespace {

double seconds(Instant from, Instant to) {
  return static_cast<double>((to - from).count()) / 1e9;
}

// What the first header says, so that the update can begin before its first frame.
Result<int64_t> recorded_version(const std::string& path) {
  CHANGEOVER_TRY_ASSIGN(auto road, transport::FileReceiveRoad::create(path));
  CHANGEOVER_TRY(road->open_stream(1));
  std::array<std::byte, wire::kHeaderBytes> bytes{};
  for (size_t got = 0; got < bytes.size();) {
    CHANGEOVER_TRY_ASSIGN(
        const transport::Run run,
        road->receive(transport::Part::kHeader, bytes.size() - got, {}, Instant::never()));
    std::copy_n(run.data, run.bytes, bytes.begin() + got);
    got += run.bytes;
    CHANGEOVER_TRY(road->release(run));
  }
  const int64_t version = wire::decode_header(bytes).version;
  if (version < 0) {
    return Status(Code::kCorrupt, path + ": the first frame's version is " +
                                      std::to_string(version) + " (rule T1)");
  }
  return version;
}

Status pump(const SubscriberOptions& options, int64_t version, protocol::FrameSink& sink,
            uint64_t& payload_bytes) {
  CHANGEOVER_TRY_ASSIGN(auto road, transport::FileReceiveRoad::create(options.endpoint.name));
  CHANGEOVER_TRY(road->open_stream(1));
  protocol::StreamReceiverOptions limits;
  limits.version = version;
  limits.metadata_bytes_max = options.metadata_bytes_max;
  const auto room = os::read_memory_room();
  limits.payload_bytes_max = options.payload_bytes_max > 0 ? options.payload_bytes_max
                             : room.ok()                   ? room->room_bytes()
                                                           : INT64_MAX;
  protocol::StreamReceiver receiver(limits, sink);
  while (const auto want = receiver.want()) {
    auto run = road->receive(part_of(want->part), want->bytes, {}, Instant::never());
    if (!run.ok()) {
      receiver.on_road_failure(run.status().with_context(receiver.position()));
      break;
    }
    receiver.on_bytes({run->data, run->bytes});
    if (Status status = road->release(*run); !status.ok()) {
      receiver.on_road_failure(status);
    }
    if (want->part == protocol::StreamPart::kPayload && options.on_progress) {
      receiver.fail(call("on_progress", [&] {
        options.on_progress(receiver.payload_bytes());
        return Status();
      }));
    }
  }
  payload_bytes = receiver.payload_bytes();
  return receiver.result();
}

}  // namespace

Result<RankReport> receive_file(const SubscriberOptions& options, const os::Clock& clock,
                                WaitingFence& fence, update::Transaction& transaction) {
  CHANGEOVER_TRY_ASSIGN(const int64_t version, recorded_version(options.endpoint.name));
  const auto begun = transaction.begin({0, version}, std::nullopt, false);
  if (begun.kind != update::BeginKind::kReady) {
    return begun.kind == update::BeginKind::kRefused
               ? begun.why
               : Status(Code::kRefused, "this rank holds version " + std::to_string(version) +
                                            " already, and a recording carries no digest");
  }
  protocol::TransactionSink sink(transaction);
  PhaseSeconds times;
  uint64_t payload_bytes = 0;
  const Instant started = clock.now();
  Status status = pump(options, version, sink, payload_bytes);
  const Instant ended = clock.now();
  times.receive = seconds(started, ended);
  if (status.ok()) {
    status = transaction.prepare(std::nullopt);
  }
  const Instant prepared = clock.now();
  times.prepare = seconds(ended, prepared);
  std::string cache_result;
  if (status.ok()) {
    transaction.finish();
    if (options.on_commit) {
      cache_result = run_commit_hook(options);
    }
    fence.state().open_gate();
  } else {
    transaction.abort(status, false);
  }
  fence.wake_readers();
  times.finish = seconds(prepared, clock.now());
  const bool live = options.mode == Mode::kInPlace || options.mode == Mode::kJournal;
  times.pause = seconds(live ? started : ended, clock.now());
  RankReport report = transaction.report();
  report.seconds = times;
  report.bytes_received = std::max(report.bytes_received, payload_bytes);
  report.road = road_name(Endpoint::Kind::kFile);
  report.road_reason = road_reason(Endpoint::Kind::kFile);
  report.cache_policy = options.cache_policy;
  report.cache_result = cache_result;
  return report;
}

}  // namespace changeover::runtime
