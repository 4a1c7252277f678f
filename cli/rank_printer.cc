#include "cli/rank_printer.h"

#include <cstdio>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/emit.h"
#include "cli/report_text.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);

// Why no publisher takes this rank; empty where there is merely none to be reached.
std::string refusal(const RankStatus& status) {
  const bool refused = !status.connected && status.last_error.code() == Code::kRefused;
  return refused ? status.last_error.message() : std::string();
}

// What a person wants to be told of; counters that only grow are not news.
bool same(const RankStatus& a, const RankStatus& b) {
  return a.version == b.version && a.fenced == b.fenced && a.fence_reason == b.fence_reason &&
         a.gate_open == b.gate_open && a.connected == b.connected &&
         a.updates_committed == b.updates_committed && a.updates_aborted == b.updates_aborted &&
         refusal(a) == refusal(b);
}

std::string state_text(const RankStatus& status, const std::string& waiting_for,
                       const std::string& from) {
  const std::string held =
      status.version ? "version " + version_text(status.version) : std::string("no version");
  std::string text = status.fenced && !status.version ? "fenced: " + status.fence_reason
                     : status.fenced ? fmt::format("fenced, {}: {}", held, status.fence_reason)
                     : status.gate_open && waiting_for.empty()
                         ? "serving " + held
                         : fmt::format("{}, no steps: {}", held, waiting_for);
  text += status.connected ? ", connected to " + from : ", waiting for a publisher at " + from;
  if (const std::string why = refusal(status); !why.empty()) {
    text += ", which refuses this rank: " + printable(why);
  }
  return text;
}

}  // namespace

RankPrinter::RankPrinter(const ReferenceRank& rank, std::string from, bool json)
    : rank_(rank), from_(std::move(from)), json_(json), thread_([this] { run(); }) {}

RankPrinter::~RankPrinter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  look();
}

void RankPrinter::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    look();
    wake_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

void RankPrinter::look() {
  RankStatus status = rank_.status();
  StepStatus steps = rank_.steps();
  if (last_ && same(*last_, status) && last_waiting_for_ == steps.waiting_for) {
    return;
  }
  // The report's error: the status names the last one of any kind, a publisher that left included.
  if (!last_ || last_->updates_aborted != status.updates_aborted) {
    const auto report = rank_.last_report();
    update_error_ = report ? report->error.message() : "";
    if (!update_error_.empty() && !json_) {
      print(coloured("update failed: ", Colour::kRed, stdout) + printable(update_error_), status,
            steps);
    }
  }
  print(state_text(status, steps.waiting_for, from_), status, steps);
  last_ = std::move(status);
  last_waiting_for_ = std::move(steps.waiting_for);
}

void RankPrinter::print(const std::string& text, const RankStatus& status,
                        const StepStatus& steps) const {
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - start_;
  if (!json_) {
    emit("{:7.1f} s  {}  {} ({} steps)\n", age.count(), status.rank.to_text(), text, steps.run);
  } else {
    nlohmann::ordered_json json = {{"format", 1},
                                   {"seconds", age.count()},
                                   {"rank", status.rank.to_text()},
                                   {"epoch", nullptr},
                                   {"version", nullptr},
                                   {"fenced", status.fenced},
                                   {"fence_reason", status.fence_reason},
                                   {"gate_open", status.gate_open},
                                   {"phase", status.phase},
                                   {"connected", status.connected},
                                   {"updates_committed", status.updates_committed},
                                   {"updates_aborted", status.updates_aborted},
                                   {"update_error", update_error_},
                                   {"last_error", status.last_error.message()},
                                   {"steps", steps.run},
                                   {"waiting_for", steps.waiting_for}};
    if (status.version) {
      json["epoch"] = status.version->epoch;
      json["version"] = status.version->version;
    }
    emit("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  std::fflush(stdout);
}

}  // namespace changeover::cli
