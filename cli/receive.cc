// changeover receive: a reference rank, until it is told to stop.
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include <changeover/endpoint.h>
#include <changeover/reference_rank.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_options.h"
#include "cli/rank_printer.h"
#include "cli/token.h"

namespace changeover::cli {
namespace {

// A handler has no argument but the signal's number, so what it needs is here.
ReferenceRank* volatile running = nullptr;
volatile std::sig_atomic_t stopped_by = 0;

void stop(int signal) {
  stopped_by = signal;
  if (running != nullptr) {
    running->request_stop();
  }
}

Result<ReferenceRankOptions> rank_options(const ReceiveArguments& arguments, Endpoint from,
                                          Mode mode) {
  ReferenceRankOptions options;
  options.model = arguments.model;
  CHANGEOVER_TRY_ASSIGN(options.plan, plan_options(arguments.plan));
  options.dp_size = arguments.plan.shape.dp_size;
  options.ep_size = arguments.plan.shape.ep_size;
  options.admin_path = arguments.admin.substr(arguments.admin.starts_with("unix:") ? 5 : 0);
  options.step_socket = arguments.step_socket;
  options.step_interval = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::milli>(arguments.step_interval_ms));
  options.once = arguments.once;
  SubscriberOptions& subscriber = options.subscriber;
  CHANGEOVER_TRY_ASSIGN(subscriber.token, read_token(arguments.token_file));
  subscriber.endpoint = std::move(from);
  subscriber.mode = mode;
  subscriber.copy_threads = arguments.copy_threads;
  subscriber.job = arguments.job;
  subscriber.engine = arguments.engine;
  subscriber.rank = arguments.plan.rank;
  CHANGEOVER_TRY_ASSIGN(subscriber.engine_size, rank_count(arguments.plan.shape));
  return options;
}

// What is wrong with a recording names its file.
Status of_recording(const Status& status, const std::string& path) {
  const bool file = status.code() == Code::kCorrupt || status.code() == Code::kInvalidArgument;
  return file && status.message().find(path) == std::string::npos ? status.with_context(path)
                                                                  : status;
}

}  // namespace

int run(const ReceiveArguments& arguments) {
  auto from = Endpoint::parse(arguments.from);
  if (!from.ok()) {
    return fail_usage("--from: " + from.status().message());
  }
  if (from->kind == Endpoint::Kind::kUnix) {
    return fail_usage("--from " + arguments.from +
                      ": no publisher listens there; weights come by shm:, tcp: or file:");
  }
  const auto mode = parse_mode(arguments.mode);
  if (!mode.ok()) {
    return fail_usage("--mode: " + mode.status().message());
  }
  const Endpoint recording = *from;
  auto options = rank_options(arguments, recording, *mode);
  if (!options.ok()) {
    return fail(options.status(), arguments.json);
  }
  auto rank = ReferenceRank::open(std::move(*options));
  if (!rank.ok()) {
    return fail(rank.status(), arguments.json);
  }
  running = rank->get();
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  Status status;
  {
    const RankPrinter printer(**rank, arguments.from, arguments.json);
    status = (*rank)->run();
  }
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  running = nullptr;
  if (recording.kind == Endpoint::Kind::kFile && !status.ok()) {
    status = of_recording(status, recording.name);
  }
  if (!status.ok()) {
    return fail(status, arguments.json);
  }
  return stopped_by == SIGINT ? kExitInterrupted : kExitOk;
}

}  // namespace changeover::cli
