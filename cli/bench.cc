// changeover bench: figures of whole updates beside their limits.
#include "bench/bench.h"

#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/bench_page.h"
#include "cli/commands.h"
#include "cli/emit.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"

namespace changeover::cli {
namespace {

using Json = nlohmann::ordered_json;

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json results_json(const std::vector<bench::Figure>& figures, const bench::Machine& machine) {
  Json results = Json::array();
  for (const bench::Figure& figure : figures) {
    results.push_back({{"figure", figure.name},
                       {"value", figure.value},
                       {"unit", figure.unit},
                       {"better", figure.higher_is_better ? "higher" : "lower"},
                       {"limit", optional_json(figure.limit)},
                       {"ratio", optional_json(figure.ratio())},
                       {"repeats", figure.repeats}});
  }
  return {{"format", 1},
          {"machine",
           {{"processor", machine.processor},
            {"cores", machine.cores},
            {"memory_bytes", machine.memory_bytes},
            {"kernel", machine.kernel}}},
          {"results", std::move(results)}};
}

std::string target_text(const bench::Figure& figure) {
  if (!figure.target) {
    return "";
  }
  const std::string goal =
      fmt::format("{} {}{}", figure.higher_is_better ? ">=" : "<=", *figure.target,
                  figure.limit ? "" : " " + figure.unit);
  return goal + (*figure.reached() ? "" : "  missed");
}

std::string table_text(const std::vector<bench::Figure>& figures) {
  Table table({"figure", "median", "limit", "ratio", "to reach", "limit is"}, {1, 2, 3});
  for (const bench::Figure& figure : figures) {
    table.add({figure.name, bench_value_text(figure.value, figure.unit),
               figure.limit ? bench_value_text(*figure.limit, figure.unit) : "",
               figure.ratio() ? fmt::format("{:.2f}", *figure.ratio()) : "", target_text(figure),
               figure.against});
  }
  return table.to_string();
}

Status write_page(const std::string& path, const std::vector<bench::Figure>& figures,
                  const bench::Machine& machine, const bench::Options& options) {
  auto sweeps = bench::sweep(options);
  CHANGEOVER_TRY(sweeps.status());
  std::ofstream file(path);
  file << bench_page(machine, figures, *sweeps);
  file.close();
  return file ? Status() : Status(Code::kExhausted, "cannot write " + path);
}

}  // namespace

int run(const BenchArguments& arguments) {
  bench::Options options;
  options.rounds = arguments.rounds;
  options.quick = arguments.quick;
  options.small = arguments.small;
  if (is_terminal(stderr)) {
    options.on_figure = [](std::string_view figure) {
      emit(stderr, "\r\033[Kmeasuring {}", figure);
    };
  }
  const auto figures = bench::run(arguments.figures, options);
  const bench::Machine machine = bench::machine();
  Status status = figures.status();
  if (status.ok() && !arguments.html.empty()) {
    status = write_page(arguments.html, *figures, machine, options);
  }
  if (options.on_figure) {
    emit(stderr, "\r\033[K");
  }
  if (!status.ok()) {
    return fail(status, arguments.json);
  }
  if (arguments.json) {
    emit("{}\n", results_json(*figures, machine).dump());
  } else {
    emit("{}{}, {} cores; medians, limits measured in the same run\n", table_text(*figures),
         machine.processor, machine.cores);
  }
  return kExitOk;
}

}  // namespace changeover::cli
