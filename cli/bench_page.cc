#include "cli/bench_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/core.h>

#include "cli/terminal.h"

namespace changeover::cli {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>changeover bench</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --soft: #6a737d; --line: #d8dee4; --paper: #fff;
  --ours: #0b69c7; --bare: #c2571a; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #363d46;
  --paper: #0d1117; --ours: #58a6ff; --bare: #f0883e; --good: #3fb950; --bad: #f85149; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { color: var(--soft); margin: .2rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } .n { text-align: right; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
td.soft { color: var(--soft); } .wide { overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } polyline { fill: none; stroke-width: 2.5; }
.ours { stroke: var(--ours); } .bare { stroke: var(--bare); stroke-dasharray: 6 4; }
circle.ours { fill: var(--ours); } circle.bare { fill: var(--bare); }
text.ours { fill: var(--ours); stroke: none; } text.bare { fill: var(--bare); stroke: none; }
</style></head><body>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string figures_table(const std::vector<bench::Figure>& figures) {
  std::string out =
      "<div class=\"wide\"><table><tr><th>figure</th><th class=\"n\">median</th>"
      "<th class=\"n\">limit</th><th class=\"n\">ratio</th><th>to reach</th>"
      "<th>limit is</th></tr>\n";
  for (const bench::Figure& figure : figures) {
    const auto reached = figure.reached();
    const std::string goal =
        figure.target ? fmt::format("<span class=\"{}\">{} {}{}</span>", *reached ? "good" : "bad",
                                    figure.higher_is_better ? "&ge;" : "&le;", *figure.target,
                                    figure.limit ? "" : " " + figure.unit)
                      : "";
    out += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td>{}</td><td class=\"soft\">{}</td></tr>\n",
        escaped(figure.name), bench_value_text(figure.value, figure.unit),
        figure.limit ? bench_value_text(*figure.limit, figure.unit) : "",
        figure.ratio() ? fmt::format("{:.2f}", *figure.ratio()) : "", goal,
        escaped(figure.against));
  }
  return out + "</table></div>\n";
}

// A line plot: x by place (each point as far from the next), y from 0.
class Plot {
 public:
  explicit Plot(const std::vector<bench::Point>& points) : points_(points) {
    for (const bench::Point& point : points_) {
      top_ = std::max({top_, point.value, point.limit});
    }
    step_ = std::pow(10, std::floor(std::log10(top_)));
    step_ /= top_ / step_ < 2 ? 5 : top_ / step_ < 5 ? 2 : 1;
    top_ = std::ceil(top_ / step_) * step_;
  }

  template <typename Label>
  std::string svg(std::string_view title, const Label& label) const {
    std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                  kWidth, kHeight, title);
    for (double at = 0; at <= top_ * 1.001; at += step_) {
      out += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n",
          kLeft, kWidth - kRight, y(at), y(at), kLeft - 8, y(at) + 4, at);
    }
    out += fmt::format("<text x=\"4\" y=\"16\">GB/s</text>\n");
    for (size_t i = 0; i < points_.size(); ++i) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(i),
                         kHeight - 8, label(points_[i].x));
    }
    // Names stand at their lines' ends, apart from each other.
    double bare = y(points_.back().limit);
    const double ours = y(points_.back().value);
    if (std::abs(bare - ours) < kNameHeight) {
      bare = bare < ours ? ours - kNameHeight : ours + kNameHeight;
    }
    return out + line("bare", "bare copies", &bench::Point::limit, bare) +
           line("ours", "changeover", &bench::Point::value, ours) + "</svg>\n";
  }

 private:
  static constexpr double kWidth = 760, kHeight = 300, kLeft = 48, kRight = 100, kTop = 28,
                          kBottom = 32, kNameHeight = 16;

  double x(size_t i) const {
    const double steps = points_.size() > 1 ? static_cast<double>(points_.size() - 1) : 1;
    return kLeft + 16 + static_cast<double>(i) / steps * (kWidth - kLeft - kRight - 32);
  }
  double y(double value) const {
    return kHeight - kBottom - value / top_ * (kHeight - kTop - kBottom);
  }
  std::string line(std::string_view style, std::string_view name, double bench::Point::*field,
                   double name_y) const {
    std::string path;
    std::string dots;
    for (size_t i = 0; i < points_.size(); ++i) {
      const double value = points_[i].*field;
      path += fmt::format("{:.1f},{:.1f} ", x(i), y(value));
      dots += fmt::format(
          "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>{}: {:.2f} GB/s"
          "</title></circle>\n",
          style, x(i), y(value), name, value);
    }
    return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n{}", style, path, dots) +
           fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style,
                       x(points_.size() - 1) + 10, name_y + 4, name);
  }

  const std::vector<bench::Point>& points_;
  double top_ = 1e-3;
  double step_ = 1;
};

std::string binary_size(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) {
    bytes /= 1024;
  }
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

}  // namespace

std::string bench_value_text(double value, std::string_view unit) {
  if (unit == "B") {
    return human_bytes(static_cast<uint64_t>(value));
  }
  return fmt::format("{:.{}f} {}", value, value < 100 ? 2 : 0, unit);
}

std::string bench_page(const bench::Machine& machine, const std::vector<bench::Figure>& figures,
                       const bench::Sweeps& sweeps) {
  std::string out(kHead);
  out += fmt::format("<h1>changeover bench</h1>\n<p>{}, {} cores, {}, {}</p>\n",
                     escaped(machine.processor), machine.cores, human_bytes(machine.memory_bytes),
                     escaped(machine.kernel));
  out += "<h2>Figures</h2>\n<p>Medians; each limit is measured in turns with what it limits.</p>\n";
  out += figures_table(figures);
  out +=
      "<h2>Bandwidth by tensor size</h2>\n<p>One publisher, one rank, shared memory, whole "
      "updates.</p>\n";
  out += Plot(sweeps.by_tensor_bytes).svg("bandwidth by tensor size", binary_size);
  out +=
      "<h2>Bandwidth by number of readers</h2>\n<p>What each rank gets; every rank takes the "
      "whole model.</p>\n";
  out += Plot(sweeps.by_readers).svg("bandwidth by number of readers", [](double readers) {
    return fmt::format("{}", readers);
  });
  return out + "</body></html>\n";
}

}  // namespace changeover::cli
