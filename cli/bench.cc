// changeover bench: figures of whole updates beside their limits.
#include "bench/bench.h"

#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

using Json = nlohmann::ordered_json;

Json figure_json(const bench::Figure& figure) {
  return {{"name", figure.name},
          {"mode", mode_name(figure.mode)},
          {"digests", figure.digests},
          {"payload_bytes", figure.payload_bytes},
          {"tensors", figure.tensors},
          {"first_seconds", figure.first_seconds},
          {"seconds", figure.seconds},
          {"pause_seconds", figure.pause_seconds},
          {"bytes_per_second", figure.bytes_per_second()},
          {"limit", figure.limit},
          {"limit_seconds", figure.limit_seconds},
          {"limit_bytes_per_second", figure.limit_bytes_per_second()},
          {"ratio", figure.bytes_per_second() / figure.limit_bytes_per_second()},
          {"publisher_extra_bytes", figure.publisher_extra_bytes},
          {"rank_extra_bytes", figure.rank_extra_bytes}};
}

std::string rate_text(double bytes_per_second) {
  return human_bytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

}  // namespace

int run(const BenchArguments& arguments) {
  bench::Options options;
  options.rounds = arguments.rounds;
  options.small = arguments.small;
  options.digests = arguments.digests;
  const auto mode = parse_mode(arguments.mode);
  if (!mode.ok()) {
    return fail_usage("--mode: " + mode.status().message());
  }
  options.mode = *mode;
  Json figures = Json::array();
  Table table({"benchmark", "first", "steady", "limit", "ratio", "extra: publisher", "rank"},
              {1, 2, 3, 4, 5, 6});
  for (const std::string& name : arguments.names.empty() ? bench::names() : arguments.names) {
    const auto figure = bench::run(name, options);
    if (!figure.ok()) {
      return fail(figure.status(), arguments.json);
    }
    figures.push_back(figure_json(*figure));
    table.add({name, rate_text(static_cast<double>(figure->payload_bytes) / figure->first_seconds),
               rate_text(figure->bytes_per_second()), rate_text(figure->limit_bytes_per_second()),
               fmt::format("{:.2f}", figure->bytes_per_second() / figure->limit_bytes_per_second()),
               human_bytes(figure->publisher_extra_bytes), human_bytes(figure->rank_extra_bytes)});
  }
  if (arguments.json) {
    fmt::print("{}\n", Json{{"format", 1}, {"figures", std::move(figures)}}.dump());
    return kExitOk;
  }
  fmt::print("{}mode {}, digests {}; medians of {} steady updates; limits in the same run\n",
             table.to_string(), mode_name(options.mode), options.digests ? "on" : "off",
             options.rounds);
  return kExitOk;
}

}  // namespace changeover::cli
