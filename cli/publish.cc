// changeover publish: a checkpoint (or a recording) to ranks, or into a recording.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/endpoint.h>
#include <changeover/publisher.h>
#include <changeover/report.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/input_file.h"
#include "cli/report_text.h"
#include "cli/terminal.h"
#include "cli/token.h"

namespace changeover::cli {
namespace {

Result<std::vector<std::string>> read_order(const std::string& path) {
  CHANGEOVER_TRY_ASSIGN(const std::string text, read_input_file(path));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  bool good = json.is_array();
  std::vector<std::string> names;
  for (const auto& name : good ? json : nlohmann::json::array()) {
    good = good && name.is_string();
    names.push_back(name.is_string() ? name.get<std::string>() : std::string());
  }
  if (!good) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: --order needs a JSON array of all tensor names", path));
  }
  return names;
}

Result<std::unique_ptr<TensorSource>> open_source(const PublishArguments& arguments) {
  if (arguments.model.starts_with("file:")) {
    CHANGEOVER_TRY_ASSIGN(const Endpoint recording, Endpoint::parse(arguments.model));
    if (!arguments.order_file.empty()) {
      return Status(Code::kInvalidArgument, "--order: a recording is replayed in its own order");
    }
    return open_recorded_stream(recording.name);
  }
  CHANGEOVER_TRY_ASSIGN(auto checkpoint, Checkpoint::open(arguments.model));
  if (!arguments.order_file.empty()) {
    CHANGEOVER_TRY_ASSIGN(const auto names, read_order(arguments.order_file));
    if (Status status = checkpoint->set_order(names); !status.ok()) {
      return status.with_context(arguments.order_file);
    }
  }
  return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// What the publisher says while it waits and sends: who came, who was refused or lost, and why. A
// rank that is refused asks again every second, from another port: each reason is said once.
class Talk {
 public:
  explicit Talk(ProgressBar& bar) : bar_(bar) {}
  void operator()(std::string_view line) {
    const size_t reason = line.find("refused: ");
    if (reason != line.npos) {
      std::string key(line.substr(reason));
      if (std::find(said_.begin(), said_.end(), key) != said_.end()) {
        return;
      }
      said_.push_back(std::move(key));
      if (said_.size() > kSaidMax) {
        said_.pop_front();
      }
    }
    bar_.say(printable(line));
  }

 private:
  static constexpr size_t kSaidMax = 64;
  ProgressBar& bar_;
  std::deque<std::string> said_;
};

Result<UpdateReport> send(const PublishArguments& arguments, const PublishOptions& options,
                          TensorSource& source, const Endpoint& to, ProgressBar& bar) {
  PublisherOptions publisher_options;
  publisher_options.endpoint = to;
  publisher_options.job = arguments.job;
  CHANGEOVER_TRY_ASSIGN(publisher_options.token, read_token(arguments.token_file));
  if (!arguments.json) {
    publisher_options.log = Talk(bar);
  }
  CHANGEOVER_TRY_ASSIGN(const auto publisher, Publisher::open(std::move(publisher_options)));
  if (!arguments.json) {
    emit(stderr, "listening on {}, waiting for {} rank{}\n", publisher->endpoint().to_string(),
         arguments.ranks, arguments.ranks == 1 ? "" : "s");
  }
  CHANGEOVER_TRY(publisher->wait_for_ranks(arguments.ranks, options.ranks_timeout));
  return publisher->publish(source, options);
}

int finish(const Result<UpdateReport>& report, const PublishArguments& arguments) {
  if (!report.ok()) {
    return fail(report.status(), arguments.json);
  }
  emit("{}", arguments.json ? update_report_to_json(*report) + "\n" : report_text(*report));
  if (report->status.ok()) {
    return kExitOk;
  }
  fail(report->status, false);
  return kExitFailed;  // However it failed: it was begun, and not every rank holds the version.
}

}  // namespace

int run(const PublishArguments& arguments) {
  std::signal(SIGINT, [](int) { _exit(kExitInterrupted); });
  const auto to = Endpoint::parse(arguments.to);
  if (!to.ok()) {
    return fail_usage("--to: " + to.status().message());
  }
  if (to->kind == Endpoint::Kind::kUnix) {
    return fail_usage("--to: a publisher sends to tcp:, shm: or file:, not to unix:");
  }
  auto source = open_source(arguments);
  if (!source.ok()) {
    return fail(source.status(), arguments.json);
  }
  ProgressBar bar(fmt::format("version {}", arguments.version));
  PublishOptions options;
  options.version = {arguments.epoch, arguments.version};
  options.bucket_bytes = arguments.bucket_bytes;
  options.digests = arguments.digests;
  options.ranks_min = arguments.ranks;
  options.ranks_timeout = nanoseconds(arguments.wait_seconds);
  options.ready.emplace<ReadyNow>();
  options.on_progress = [&bar](uint64_t sent, uint64_t total) { bar.update(sent, total); };
  const auto report = to->kind == Endpoint::Kind::kFile
                          ? record_stream(**source, options, to->name)
                          : send(arguments, options, **source, *to, bar);
  bar.clear();
  return finish(report, arguments);
}

}  // namespace changeover::cli
