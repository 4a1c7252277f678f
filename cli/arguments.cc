#include "cli/arguments.h"

#include <charconv>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "cli/exit_code.h"

namespace changeover::cli {
namespace {

constexpr const char* kAbout =
    "Moves newly trained weights into live inference engines: every rank changes over to the new "
    "weights together, or none does.";

constexpr const char* kFooter =
    "\nEndpoints: tcp:HOST:PORT (port 0 = any free one), shm:NAME, file:PATH, unix:PATH.\n"
    "Exit codes: 0 ok, 1 update or verification failed, 2 usage, 3 bad input, 4 refused,\n"
    "            5 peer or deadline, 130 interrupted.\n\n"
    "A checkpoint of your own, from one terminal to two ranks in others:\n"
    "  changeover receive --model DIR --from shm:demo --engine a --tp 2 --rank 0\n"
    "  changeover receive --model DIR --from shm:demo --engine a --tp 2 --rank 1\n"
    "  changeover publish --model DIR --to shm:demo --ranks 2 --version 1\n";

// A whole number in a range, read strictly: CLI11 alone would round an over-long one to the
// largest.
CLI::Validator whole(int64_t min, int64_t max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        const bool good = error == std::errc() && stop == end && value >= min && value <= max;
        return good ? std::string()
                    : fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
      },
      "");
}

CLI::Validator seconds() {
  return CLI::Validator(
      [](std::string& text) {
        const char* end = text.data() + text.size();
        double value = 0;
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        const bool good = error == std::errc() && stop == end && value >= 0 && value <= 1e6;
        return good ? std::string() : fmt::format("'{}' is not a number from 0 to 1000000", text);
      },
      "");
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON for programs instead of text");
}

void add_token(CLI::App& command, std::string& job, std::string& token_file) {
  command.add_option("--job", job, "Peers of another job are refused")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--token-file", token_file,
                  "File (mode 0600) with the shared secret; else $CHANGEOVER_TOKEN; without one "
                  "only shm and loopback are allowed")
      ->type_name("PATH");
}

void add_plan(CLI::App& command, PlanArguments& plan, const char* rank_option) {
  const auto add_count = [&](const char* option, int32_t& count, int64_t min, const char* help) {
    command.add_option(option, count, help)
        ->type_name("N")
        ->check(whole(min, 1 << 16))
        ->capture_default_str();
  };
  add_count("--tp", plan.shape.tp_size, 1, "Ranks that a copy of the model is cut over");
  add_count("--dp", plan.shape.dp_size, 1,
            "Copies of all but the experts in one engine; it has tp x dp ranks");
  add_count("--ep", plan.shape.ep_size, 1, "Groups of ranks that hold different experts");
  add_count(rank_option, plan.rank, 0, "This rank, from 0");
  command
      .add_option(
          "--expert-placement", plan.placement,
          "Which group holds which experts: contiguous, round_robin, or a file with a table")
      ->type_name("KIND")
      ->capture_default_str();
  add_count("--redundant-experts", plan.redundant_experts, 0,
            "So many more slots, for the first experts once more");
  command
      .add_option("--source-form", plan.source_form,
                  "How the tensors are spelled, where the model file knows several: per_expert, "
                  "fused")
      ->type_name("FORM");
  command
      .add_option("--dtype", plan.dtypes,
                  "Parameters kept in a dtype of their own, as '*' patterns: NAME=HELD, or "
                  "NAME=SENT:HELD for a cast (may be repeated)")
      ->type_name("NAME=DTYPE");
  command.add_option("--vocab-multiple", plan.vocab_multiple, "Pad the vocabulary to a multiple")
      ->type_name("N")
      ->check(whole(1, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--model-file", plan.model_file,
                  "Architecture description to use instead of the built-in one")
      ->type_name("PATH");
  command.add_option("--drop-segment", plan.drop_segments,
                     "Whole path segment to drop from incoming names (may be repeated)");
  command.add_option("--optional-segment", plan.optional_segments,
                     "Whole path segment that names may have or lack on either side, such as "
                     "base_layer (may be repeated)");
  command.add_option("--strip-prefix", plan.strip_prefixes,
                     "Prefix to strip from incoming names (may be repeated)");
  command.add_option("--add-prefix", plan.add_prefix, "Prefix to add to incoming names");
}

void add_publish(CLI::App& app, PublishArguments& a, Parsed& parsed) {
  CLI::App* command = app.add_subcommand("publish", "Send a checkpoint to ranks, or to a file");
  command
      ->add_option("--model", a.model, "Safetensors file or folder, or file:STREAM (a recording)")
      ->type_name("PATH")
      ->required();
  command->add_option("--to", a.to, "Where ranks dial in (tcp:, shm:), or file:PATH to record")
      ->type_name("ENDPOINT")
      ->required();
  command->add_option("--version", a.version, "The version's number, newer than what ranks hold")
      ->required()
      ->type_name("N")
      ->check(whole(0, INT64_MAX));
  command->add_option("--epoch", a.epoch, "Compared before the version; raise it to go back")
      ->type_name("N")
      ->check(whole(0, INT64_MAX))
      ->capture_default_str();
  command
      ->add_option("--bucket-bytes", a.bucket_bytes,
                   "Size of a bucket; a larger tensor is a bucket of its own (also 64MiB, 1GiB)")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->check(whole(1, int64_t{1} << 62))
      ->default_str("1GiB");
  command
      ->add_option("--order", a.order_file,
                   "JSON array of all tensor names: the order to send them in")
      ->type_name("PATH");
  command->add_option("--ranks", a.ranks, "Begin once this many ranks of whole engines are there")
      ->type_name("N")
      ->check(whole(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--wait", a.wait_seconds, "Seconds to wait for them")
      ->type_name("SECONDS")
      ->check(seconds())
      ->capture_default_str();
  command->add_flag_callback(
      "--no-digests", [&a] { a.digests = false; }, "Leave out the digests; the report says so");
  add_token(*command, a.job, a.token_file);
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_mode(CLI::App& command, std::string& mode) {
  command.add_option("--mode", mode, "How bytes reach live memory")
      ->type_name("")
      ->check(CLI::IsMember({"journal", "in_place", "staged", "swap"}))
      ->capture_default_str();
}

void add_receive(CLI::App& app, ReceiveArguments& a, Parsed& parsed) {
  CLI::App* command = app.add_subcommand(
      "receive", "A reference rank: holds its shard in live memory and steps over it");
  command->add_option("--model", a.model, "Folder with config.json (weights are not read)")
      ->type_name("PATH")
      ->required();
  command->add_option("--from", a.from, "Where a publisher listens, or file:STREAM (with --tp 1)")
      ->type_name("ENDPOINT")
      ->required();
  command->add_option("--engine", a.engine, "Name of the engine this rank belongs to")
      ->type_name("NAME")
      ->required();
  add_plan(*command, a.plan, "--rank");
  add_mode(*command, a.mode);
  command
      ->add_option("--copy-threads", a.copy_threads,
                   "In staged: threads that copy the second half into live memory")
      ->type_name("N")
      ->check(whole(1, 64))
      ->capture_default_str();
  command->add_option("--admin", a.admin, "unix:PATH on which the rank answers questions")
      ->type_name("ENDPOINT");
  command
      ->add_option("--step-socket", a.step_socket,
                   "Name of the socket over which rank 0 conducts the steps (default: derived)")
      ->type_name("NAME");
  command->add_option("--step-interval-ms", a.step_interval_ms, "Least time between two steps")
      ->type_name("MS")
      ->check(seconds())
      ->capture_default_str();
  command->add_flag("--once", a.once, "With file: end once the stream was received");
  add_token(*command, a.job, a.token_file);
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_inspect(CLI::App& app, InspectArguments& a, Parsed& parsed) {
  CLI::App* command =
      app.add_subcommand("inspect", "What is in a checkpoint or in a recorded stream");
  command->add_option("what", a.what, "Safetensors file or folder, or file:STREAM")->required();
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_show_plan(CLI::App& app, ShowPlanArguments& a, Parsed& parsed) {
  CLI::App* command =
      app.add_subcommand("plan", "Which piece of which tensor fills which parameter of one rank");
  CLI::Option* model =
      command
          ->add_option("--model", a.model,
                       "Folder with config.json, or the file itself (weights are not read)")
          ->type_name("PATH");
  CLI::Option* check =
      command->add_option("--check", a.plan_file, "Prove a plan given as JSON by an engine")
          ->type_name("PATH");
  CLI::Option* list = command->add_flag("--list", a.list, "List the built-in architectures");
  model->excludes(check)->excludes(list);
  check->excludes(list);
  add_plan(*command, a.plan, "--rank");
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_verify(CLI::App& app, VerifyArguments& a, Parsed& parsed) {
  CLI::App* command = app.add_subcommand(
      "verify", "Compare what a rank or a folder holds with a cold load of a checkpoint");
  command->add_option("--model", a.model, "The checkpoint: a folder with config.json and weights")
      ->type_name("PATH")
      ->required();
  CLI::Option* rank =
      command->add_option("--rank", a.rank, "A running rank, by its admin socket (unix:PATH)")
          ->type_name("ENDPOINT");
  CLI::Option* folder = command
                            ->add_option("--folder", a.folder,
                                         "Or a checkpoint to compare (--model itself: has it all?)")
                            ->type_name("PATH");
  rank->excludes(folder);
  add_plan(*command, a.plan, "--tp-rank");
  command->add_option("--wait", a.wait_seconds, "Seconds to wait for the rank's answer")
      ->type_name("SECONDS")
      ->check(seconds())
      ->capture_default_str();
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_demo(CLI::App& app, DemoArguments& a, Parsed& parsed) {
  CLI::App* command = app.add_subcommand(
      "demo", "A trainer and two engines on this machine; one rank is killed in mid-stream");
  command->add_option("--model", a.model, "Folder with config.json and safetensors")
      ->type_name("PATH")
      ->required();
  command->add_option("--road", a.road, "How the bytes travel")
      ->type_name("")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  add_mode(*command, a.mode);
  command->add_option("--tp", a.tp_size, "Ranks of each engine")
      ->type_name("N")
      ->check(whole(2, 64))
      ->capture_default_str();
  command->add_option("--seed", a.seed, "Of the synthetic updates")
      ->type_name("N")
      ->check(whole(0, INT64_MAX))
      ->capture_default_str();
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

void add_bench(CLI::App& app, BenchArguments& a, Parsed& parsed) {
  CLI::App* command = app.add_subcommand(
      "bench", "Figures of whole updates, each beside the limit it is held to (docs/bench.md)");
  command->add_option("--figure", a.figures, "Only this one; may be given again (default: all)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command->add_flag("--quick", a.quick, "Fewer rounds: all figures within a minute");
  command->add_option("--rounds", a.rounds, "Steady updates per figure, after the first")
      ->type_name("N")
      ->check(whole(1, 1000));
  command->add_flag("--small", a.small, "Models of a few MB: to see that it runs, not for figures");
  command
      ->add_option("--html", a.html,
                   "Also write a page that plots bandwidth by tensor size and by readers")
      ->type_name("FILE");
  add_json(*command, a.json);
  command->final_callback([&] { parsed.command = a; });
}

// What CLI11 cannot say of single options. Empty = nothing wrong.
struct Check {
  std::string operator()(const PublishArguments&) const { return {}; }
  std::string operator()(const InspectArguments&) const { return {}; }
  std::string operator()(const DemoArguments&) const { return {}; }
  std::string operator()(const BenchArguments&) const { return {}; }
  std::string operator()(const ReceiveArguments& a) const { return rank_of_engine(a.plan); }
  std::string operator()(const ShowPlanArguments& a) const {
    if (a.model.empty() && a.plan_file.empty() && !a.list) {
      return "plan needs --model, --check or --list";
    }
    return rank_of_engine(a.plan);
  }
  std::string operator()(const VerifyArguments& a) const {
    return a.rank.empty() && a.folder.empty() ? "verify needs --rank or --folder"
                                              : rank_of_engine(a.plan);
  }
  static std::string rank_of_engine(const PlanArguments& plan) {
    const auto ranks = rank_count(plan.shape);
    if (!ranks.ok()) {
      return ranks.status().message();
    }
    return plan.rank < *ranks ? std::string()
                              : fmt::format("rank {} of {} ranks: ranks count from 0 to {}",
                                            plan.rank, *ranks, *ranks - 1);
  }
};

}  // namespace

Parsed parse_arguments(int argc, char** argv) {
  CLI::App app(kAbout, "changeover");
  app.set_version_flag("--version", "changeover " CHANGEOVER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);

  Parsed parsed;
  PublishArguments publish;
  ReceiveArguments receive;
  InspectArguments inspect;
  ShowPlanArguments plan;
  VerifyArguments verify;
  DemoArguments demo;
  BenchArguments bench;
  add_publish(app, publish, parsed);
  add_receive(app, receive, parsed);
  add_inspect(app, inspect, parsed);
  add_show_plan(app, plan, parsed);
  add_verify(app, verify, parsed);
  add_demo(app, demo, parsed);
  add_bench(app, bench, parsed);
  app.footer(kFooter);  // After the subcommands, which would take it over.
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    parsed.exit_code = app.exit(help);
    return parsed;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    parsed.exit_code =
        fail_usage(fmt::format("{} (changeover {}--help shows how)", error.what(),
                               chosen.empty() ? "" : chosen.front()->get_name() + " "));
    return parsed;
  }
  const std::string wrong = std::visit(Check(), *parsed.command);
  if (!wrong.empty()) {
    return {std::nullopt, fail_usage(wrong)};
  }
  return parsed;
}

}  // namespace changeover::cli
