// changeover demo: one trainer, two engines, five versions, and a rank that is killed in the middle
// of the third. Every process is real, and so is what is checked at the end.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <changeover/report.h>
#include <changeover/verify.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/demo_fleet.h"
#include "cli/demo_screen.h"
#include "cli/demo_trainer.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

constexpr int64_t kVersionKilled = 3;
constexpr int64_t kVersionLast = 5;
constexpr uint64_t kStepsBetween = 25;  // Steps that are seen on a version before the next one.
constexpr auto kWait = std::chrono::seconds(60);

volatile std::sig_atomic_t interrupted = 0;

bool has_all(const UpdateReport& report, const std::string& engine) {
  return std::all_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
    return rank.rank.engine != engine || rank.outcome == RankOutcome::kCommitted;
  });
}

class Demo {
 public:
  Demo(const DemoArguments& arguments, std::string folder)
      : arguments_(arguments), folder_(std::move(folder)), screen_(arguments.json) {}

  Status run() {
    CHANGEOVER_TRY(start_trainer());
    CHANGEOVER_TRY(start_ranks());
    CHANGEOVER_TRY(update(1));
    CHANGEOVER_TRY(update(2));
    CHANGEOVER_TRY(update_with_a_death());
    CHANGEOVER_TRY(bring_back());
    CHANGEOVER_TRY(update(4));
    CHANGEOVER_TRY(update(kVersionLast));
    return verify();
  }

  std::string summary() const {
    uint64_t steps = 0;
    for (const RankView& view : fleet_->views()) {
      steps += view.steps;
    }
    return fmt::format(
        "All {} ranks hold version {}, byte for byte. When rank {} was killed in the middle of "
        "version {}, its engine {}; the other engine went on, and none of {} steps saw a mix.",
        fleet_->views().size(), kVersionLast, victim_name(), kVersionKilled,
        mode_text("had version 2 back at once", "refused to serve until the next version",
                  "had never left version 2"),
        steps);
  }

  std::string json() const {
    nlohmann::ordered_json json = {{"format", 1}, {"ok", true}, {"updates", updates_}};
    json["ranks"] = nlohmann::ordered_json::array();
    for (const RankView& view : fleet_->views()) {
      json["ranks"].push_back({{"engine", view.engine},
                               {"rank", view.rank},
                               {"version", view.version.value_or(-1)},
                               {"steps", view.steps},
                               {"steps_mixed", view.steps_mixed},
                               {"pause_seconds", view.pause_seconds.value_or(0)}});
    }
    json["summary"] = summary();
    return json.dump();
  }

 private:
  size_t victim() const { return fleet_->index_of("b", 1); }
  static std::string victim_name() { return "b/1"; }

  // One turn of everything: what the trainer says (if anything), what the ranks say, the screen.
  Result<std::optional<std::string>> turn() {
    if (interrupted != 0) {
      return Status(Code::kAborted, "interrupted");
    }
    CHANGEOVER_TRY_ASSIGN(auto line, trainer_->receive(20));
    if (line && line->starts_with("error ")) {
      return Status(Code::kAborted, "trainer: " + line->substr(6));
    }
    if (fleet_ && (!line || !line->starts_with("progress"))) {
      fleet_->look();
      for (size_t i = 0; i < fleet_->views().size(); ++i) {
        if (!fleet_->views()[i].alive && i != dead_) {
          return Status(Code::kAborted, fmt::format("rank {}/{} ended by itself; its words: {}",
                                                    fleet_->views()[i].engine,
                                                    fleet_->views()[i].rank, fleet_->log(i)));
        }
      }
      screen_.draw(*fleet_, progress_);
    }
    return line;
  }

  Result<std::string> wait_for_line(const std::function<bool(const std::string&)>& wanted,
                                    const std::string& what) {
    const auto end = std::chrono::steady_clock::now() + kWait;
    while (std::chrono::steady_clock::now() < end) {
      CHANGEOVER_TRY_ASSIGN(const auto line, turn());
      if (line && wanted(*line)) {
        return *line;
      }
    }
    return Status(Code::kDeadline, "waited a minute for the trainer to " + what);
  }

  Status wait_for_ranks(const std::function<bool(const RankView&)>& wanted,
                        const std::string& what) {
    const auto end = std::chrono::steady_clock::now() + kWait;
    while (std::chrono::steady_clock::now() < end) {
      CHANGEOVER_TRY_ASSIGN(const auto line, turn());
      if (std::all_of(fleet_->views().begin(), fleet_->views().end(), wanted)) {
        return {};
      }
    }
    return {Code::kDeadline, "waited a minute for ranks that " + what};
  }

  // The ranks go on serving for a while.
  Status wait_for_steps() {
    const uint64_t enough = fleet_->views()[0].steps + kStepsBetween;
    return wait_for_ranks(
        [&](const RankView& view) {
          return view.engine != "a" || view.rank != 0 || view.steps >= enough;
        },
        "step on");
  }

  Status start_trainer() {
    TrainerOptions options;
    options.model = arguments_.model;
    options.endpoint = arguments_.road == "tcp" ? std::string("tcp:127.0.0.1:0")
                                                : fmt::format("shm:demo-{}", getpid());
    options.seed = arguments_.seed;
    options.ranks = static_cast<uint32_t>(2 * arguments_.tp_size);
    CHANGEOVER_TRY_ASSIGN(trainer_, Child::start_function([options](int read_fd, int write_fd) {
                            return run_trainer(options, read_fd, write_fd);
                          }));
    CHANGEOVER_TRY_ASSIGN(
        const std::string line,
        wait_for_line([](const std::string& text) { return text.starts_with("endpoint "); },
                      "read the model"));
    std::array<char, 256> endpoint = {};
    unsigned long long tensors = 0;
    unsigned long long bytes = 0;
    std::sscanf(line.c_str(), "endpoint %255s %llu %llu", endpoint.data(), &tensors, &bytes);
    endpoint_ = endpoint.data();
    screen_.say(fmt::format("trainer: {} tensors, {} of {}; listens on {}", tensors,
                            human_bytes(bytes), arguments_.model, endpoint_));
    return {};
  }

  Status start_ranks() {
    fleet_ = std::make_unique<Fleet>(FleetOptions{
        arguments_.model, endpoint_, arguments_.mode, folder_, {"a", "b"}, arguments_.tp_size});
    for (size_t i = 0; i < fleet_->views().size(); ++i) {
      CHANGEOVER_TRY(fleet_->start(i));
    }
    screen_.say(fmt::format("engines a and b: {} rank processes each, mode {}", arguments_.tp_size,
                            arguments_.mode));
    return wait_for_ranks([](const RankView& view) { return view.connected; }, "dial in");
  }

  Result<UpdateReport> publish(int64_t version, bool hold) {
    progress_ = fmt::format("version {}: begin", version);
    CHANGEOVER_TRY(trainer_->send(fmt::format("publish {}{}", version, hold ? " hold" : "")));
    CHANGEOVER_TRY_ASSIGN(
        const std::string line,
        wait_for_line(
            [&](const std::string& text) {
              unsigned long long sent = 0;
              unsigned long long total = 0;
              if (std::sscanf(text.c_str(), "progress %llu %llu", &sent, &total) == 2) {
                progress_ = fmt::format("version {}: {} of {} sent", version, human_bytes(sent),
                                        human_bytes(total));
              } else if (text == "half") {
                kill_victim();
              }
              return text.starts_with("report ");
            },
            fmt::format("publish version {}", version)));
    progress_.clear();
    CHANGEOVER_TRY_ASSIGN(auto report, parse_update_report(line.substr(7)));
    updates_.push_back(nlohmann::ordered_json::parse(line.substr(7), nullptr, false));
    return report;
  }

  void kill_victim() {
    dead_ = victim();
    fleet_->kill(dead_);
    screen_.say(coloured(fmt::format("rank {} killed (SIGKILL) with half of version {} sent",
                                     victim_name(), kVersionKilled),
                         Colour::kRed, stdout));
    if (const Status sent = trainer_->send("go"); !sent.ok()) {
      screen_.say(sent.message());
    }
  }

  // What became of the living ranks of an engine that did not change over, by mode.
  const char* mode_text(const char* journal, const char* in_place, const char* second) const {
    return arguments_.mode == "journal"    ? journal
           : arguments_.mode == "in_place" ? in_place
                                           : second;
  }

  // "a 31 ms, b 30 ms": the longest gap between two steps that a rank of the engine saw.
  std::string pauses(const std::string& engines) const {
    std::string text;
    for (const char engine : engines) {
      double longest = 0;
      for (const RankView& view : fleet_->views()) {
        if (view.engine[0] == engine) {
          longest = std::max(longest, view.pause_seconds.value_or(0));
        }
      }
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", engine, human_seconds(longest));
    }
    return text;
  }

  static std::string figures(const UpdateReport& report) {
    const auto rate = static_cast<uint64_t>(static_cast<double>(report.payload_bytes) /
                                            std::max(report.seconds, 1e-9));
    return fmt::format("{} in {}, {}/s", human_bytes(report.payload_bytes),
                       human_seconds(report.seconds), human_bytes(rate));
  }

  Status update(int64_t version) {
    CHANGEOVER_TRY_ASSIGN(const UpdateReport report, publish(version, false));
    if (!report.status.ok()) {
      return report.status.with_context(fmt::format("version {}", version));
    }
    CHANGEOVER_TRY(wait_for_ranks(
        [&](const RankView& view) { return view.serving && view.steps_on == version; },
        fmt::format("step on version {}", version)));
    CHANGEOVER_TRY(wait_for_steps());
    screen_.say(
        fmt::format("version {}{}: {} to every rank; {}", version,
                    version == 1 ? "" : " (synthetic: a small seeded change)", figures(report),
                    version == 1 ? "first weights, steps begin" : "pause: " + pauses("ab")));
    return {};
  }

  Status update_with_a_death() {
    CHANGEOVER_TRY_ASSIGN(const UpdateReport report, publish(kVersionKilled, true));
    if (report.status.ok() || !has_all(report, "a") || has_all(report, "b")) {
      return {Code::kAborted, "version 3 should have failed in engine b alone, and did not"};
    }
    const bool restored = arguments_.mode != "in_place";
    CHANGEOVER_TRY(wait_for_ranks(
        [&](const RankView& view) {
          if (view.engine == "a") {
            return view.serving && view.steps_on == kVersionKilled;
          }
          // In place, a rank that no byte had reached yet is whole and needs no fence.
          const bool whole = !view.fenced && view.version == kVersionKilled - 1;
          const bool held = whole || (!restored && view.fenced);
          return !view.alive || (held && !view.serving);
        },
        "end version 3 as they should"));
    screen_.say(
        fmt::format("version 3 (synthetic): engine a changed over, pause {}; engine b did "
                    "not: its living ranks {}",
                    pauses("a"),
                    mode_text("have version 2 back, bytes restored", "are fenced",
                              "hold version 2, untouched")));
    return {};
  }

  Status bring_back() {
    CHANGEOVER_TRY(fleet_->start(victim()));
    dead_ = kNobody;
    CHANGEOVER_TRY(wait_for_ranks([](const RankView& view) { return view.connected; }, "dial in"));
    screen_.say(
        fmt::format("rank {} is back, empty: engine b takes no steps until all its ranks "
                    "hold one version",
                    victim_name()));
    return {};
  }

  Status verify() {
    const std::filesystem::path model = std::filesystem::path(folder_) / "version-5";
    std::error_code error;
    std::filesystem::create_directory(model, error);
    const std::filesystem::path config(arguments_.model);
    std::filesystem::copy_file(config / "config.json", model / "config.json", error);
    progress_ = "writing version 5 as a checkpoint, to verify against";
    CHANGEOVER_TRY(trainer_->send("save " + (model / "model.safetensors").string()));
    CHANGEOVER_TRY_ASSIGN(
        const std::string saved,
        wait_for_line([](const std::string& text) { return text == "saved"; }, "save version 5"));
    for (size_t i = 0; i < fleet_->views().size(); ++i) {
      const RankView& view = fleet_->views()[i];
      progress_ = fmt::format("verifying {}/{}", view.engine, view.rank);
      CHANGEOVER_TRY_ASSIGN(const auto line, turn());
      CHANGEOVER_TRY_ASSIGN(const VerifyReport report, verify_rank(fleet_->admin(i), model));
      if (!report.same() || !report.version || report.version->version != kVersionLast) {
        return {Code::kAborted, fmt::format("{} does not hold version 5: {} parameters differ",
                                            report.subject, report.differences.size())};
      }
      if (view.steps_mixed != 0) {
        return {Code::kAborted, fmt::format("{} steps of {} read a mix of versions",
                                            view.steps_mixed, report.subject)};
      }
    }
    progress_.clear();
    screen_.draw(*fleet_, progress_, /*now=*/true);
    screen_.keep();
    screen_.say("verified: every rank against a cold load of version 5");
    return {};
  }

  static constexpr size_t kNobody = SIZE_MAX;
  const DemoArguments arguments_;
  const std::string folder_;
  Screen screen_;
  std::unique_ptr<Child> trainer_;
  std::unique_ptr<Fleet> fleet_;
  std::string endpoint_;
  std::string progress_;
  size_t dead_ = kNobody;  // The rank that may be dead.
  std::vector<nlohmann::ordered_json> updates_;
};

}  // namespace

int run(const DemoArguments& arguments) {
  for (const int ending : {SIGINT, SIGTERM}) {
    std::signal(ending, [](int) { interrupted = 1; });
  }
  // The demo's ranks and trainer are its own: a secret meant for others would part them.
  unsetenv("CHANGEOVER_TOKEN");
  std::error_code no_folder;
  std::string folder =
      (std::filesystem::temp_directory_path(no_folder) / "changeover-demo-XXXXXX").string();
  if (no_folder || mkdtemp(folder.data()) == nullptr) {
    return fail({Code::kExhausted, "cannot make a folder in the temporary directory (TMPDIR)"},
                arguments.json);
  }
  int code = kExitOk;
  {
    Demo demo(arguments, folder);
    const Status status = demo.run();
    if (interrupted != 0) {
      code = kExitInterrupted;
    } else if (!status.ok()) {
      code = fail(status.with_context("demo"), arguments.json);
    } else {
      emit("{}\n", arguments.json ? demo.json() : demo.summary());
    }
  }
  std::error_code error;
  if (code == kExitOk || code == kExitInterrupted) {
    std::filesystem::remove_all(folder, error);
  } else {
    emit(stderr, "what each rank said is kept in {}\n", folder);
  }
  return code;
}

}  // namespace changeover::cli
