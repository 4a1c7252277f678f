#include "runtime/subscriber_options.h"

#include <algorithm>
#include <string>

#include "control/dialer.h"
#include "os/error.h"
#include "runtime/deadlines.h"

namespace changeover::runtime {
namespace {

constexpr int32_t kCopyThreadsMax = 64;

}  // namespace

std::chrono::nanoseconds drain_time(const SubscriberOptions& options) {
  const Deadlines& deadlines = options.deadlines;
  return options.mode == Mode::kStaged ? std::min(deadlines.drain, deadlines.vote / 4)
                                       : deadlines.drain;
}

Status check_options(const SubscriberOptions& options, const LoadPlan& plan) {
  if (options.engine.empty()) {
    return {Code::kInvalidArgument, "the engine has no name"};
  }
  if (options.engine_size < 1 || options.rank < 0 || options.rank >= options.engine_size) {
    return {Code::kInvalidArgument, "rank " + std::to_string(options.rank) + " of an engine of " +
                                        std::to_string(options.engine_size) + " ranks"};
  }
  if (options.copy_threads < 1 || options.copy_threads > kCopyThreadsMax) {
    return {Code::kInvalidArgument, "copy_threads is " + std::to_string(options.copy_threads) +
                                        ": 1 to " + std::to_string(kCopyThreadsMax)};
  }
  CHANGEOVER_TRY(check_deadlines(options.deadlines));
  if (options.deadlines.drain >= options.deadlines.stall) {
    return {Code::kInvalidArgument,
            "deadlines.drain is " + os::duration_text(options.deadlines.drain.count()) +
                ", deadlines.stall " + os::duration_text(options.deadlines.stall.count()) +
                ": a rank reads nothing while it waits for steps, so the publisher would drop it"};
  }
  if (options.engine_size == plan.tp_size && options.rank != plan.tp_rank) {
    return {Code::kInvalidArgument, "rank " + std::to_string(options.rank) +
                                        " was given the plan of tensor-parallel rank " +
                                        std::to_string(plan.tp_rank)};
  }
  if (options.endpoint.kind == Endpoint::Kind::kFile) {
    return options.engine_size == 1
               ? Status()
               : Status(Code::kInvalidArgument,
                        "a recorded stream is decided on by one rank alone: engine size 1, not " +
                            std::to_string(options.engine_size));
  }
  control::ChannelOptions channel;
  channel.job = options.job;
  channel.token = options.token;
  return control::Dialer::check(options.endpoint, channel);
}

}  // namespace changeover::runtime
