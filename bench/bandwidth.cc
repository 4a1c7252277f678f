// GB/s of payload that every rank gets, whole updates: begin, stream, vote, release.
#include <array>
#include <string>

#include "bench/family.h"
#include "bench/fleet.h"

namespace changeover::bench {
namespace {

constexpr std::string_view kPipeline = "copied in and out of one mapping, 1 MiB x 8";
constexpr std::string_view kPipelineFour = "the same copies with four readers";
constexpr std::string_view kBareTcp = "bare write and read of one loopback connection";

double rate(uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds * 1e-9;
}

// The first update apart, then updates and bare copies in turns.
Status measure(const Context& context, Recorder& recorder, const std::string& name,
               const FleetOptions& options, bool digests, int rounds) {
  CHANGEOVER_TRY_ASSIGN(const Model* model, context.models.dense());
  CHANGEOVER_TRY_ASSIGN(const auto fleet, Fleet::start(*model, options));
  CHANGEOVER_TRY_ASSIGN(const auto first, fleet->publish(digests));
  recorder.add(name + "_first", rate(model->bytes, first.seconds));
  CHANGEOVER_TRY(fleet->limit_seconds().status());  // Its ring and connection are new.
  for (int round = 0; round < context.rounds(rounds); ++round) {
    CHANGEOVER_TRY_ASSIGN(const double bare, fleet->limit_seconds());
    recorder.add_limit(name, rate(model->bytes, bare));
    recorder.add_limit(name + "_first", rate(model->bytes, bare));
    CHANGEOVER_TRY_ASSIGN(const auto report, fleet->publish(digests));
    recorder.add(name, rate(model->bytes, report.seconds));
  }
  return {};
}

Status measure_shm(const Context& context, Recorder& recorder) {
  return measure(context, recorder, "shm_1to1_dense", {}, false, 7);
}
Status measure_shm_digest(const Context& context, Recorder& recorder) {
  return measure(context, recorder, "shm_1to1_dense_digest", {}, true, 7);
}
Status measure_tcp(const Context& context, Recorder& recorder) {
  return measure(context, recorder, "tcp_1to1_dense", {.tcp = true}, false, 7);
}
Status measure_four(const Context& context, Recorder& recorder) {
  return measure(context, recorder, "shm_1to4_dense", {.ranks = 4}, false, 5);
}

constexpr FigureSpec kShm[] = {
    {"shm_1to1_dense", "GB/s", true, kPipeline, 0.85},
    {"shm_1to1_dense_first", "GB/s", true, kPipeline, {}},
};
constexpr FigureSpec kShmDigest[] = {
    {"shm_1to1_dense_digest", "GB/s", true, kPipeline, 0.7},
    {"shm_1to1_dense_digest_first", "GB/s", true, kPipeline, {}},
};
constexpr FigureSpec kTcp[] = {
    {"tcp_1to1_dense", "GB/s", true, kBareTcp, 0.9},
    {"tcp_1to1_dense_first", "GB/s", true, kBareTcp, {}},
};
constexpr FigureSpec kFour[] = {
    {"shm_1to4_dense", "GB/s", true, kPipelineFour, 0.8},
    {"shm_1to4_dense_first", "GB/s", true, kPipelineFour, {}},
};
constexpr Family kFamilies[] = {{kShm, measure_shm},
                                {kShmDigest, measure_shm_digest},
                                {kTcp, measure_tcp},
                                {kFour, measure_four}};

}  // namespace

std::span<const Family> bandwidth_families() {
  return kFamilies;
}

}  // namespace changeover::bench
