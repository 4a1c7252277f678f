// The list of figures, and how their samples become results.
#include <algorithm>
#include <array>

#include "bench/family.h"

namespace changeover::bench {
namespace {

std::vector<Family> families() {
  std::vector<Family> all;
  for (const auto& list : {bandwidth_families(), tensor_families(), memory_families(),
                           vote_families(), mode_families(), decode_families()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

bool wanted(std::string_view figure, std::span<const std::string> names) {
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return figure == name || figure == name + "_first";
         });
}

Figure finish(const FigureSpec& spec, const Recorder& recorder) {
  Figure figure;
  const std::vector<double> values = recorder.values(spec.name);
  const std::vector<double> limits = recorder.limits(spec.name);
  figure.name = spec.name;
  figure.value = median(values);
  figure.unit = spec.unit;
  figure.higher_is_better = spec.higher_is_better;
  figure.repeats = static_cast<int>(values.size());
  if (!limits.empty()) {
    figure.limit = median(limits);
  }
  figure.against = spec.against;
  figure.target = spec.target;
  return figure;
}

Status check_names(std::span<const std::string> asked) {
  const auto known = names();
  for (const std::string& name : asked) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string list;
      for (const std::string& one : known) {
        list += (list.empty() ? "" : ", ") + one;
      }
      return {Code::kInvalidArgument, "no figure is called '" + name + "'; there are " + list};
    }
  }
  return {};
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

std::optional<double> Figure::ratio() const {
  return limit && *limit > 0 ? std::optional(value / *limit) : std::nullopt;
}

std::optional<bool> Figure::reached() const {
  if (!target) {
    return std::nullopt;
  }
  const double got = ratio().value_or(value);
  return higher_is_better ? got >= *target : got <= *target;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Family& family : families()) {
    for (const FigureSpec& figure : family.figures) {
      all.emplace_back(figure.name);
    }
  }
  return all;
}

Result<std::vector<Figure>> run(std::span<const std::string> names, const Options& options) {
  CHANGEOVER_TRY(check_names(names));
  Models models(options.small);
  const Context context{options, models};
  std::vector<Figure> figures;
  for (const Family& family : families()) {
    if (std::none_of(family.figures.begin(), family.figures.end(),
                     [&](const FigureSpec& figure) { return wanted(figure.name, names); })) {
      continue;
    }
    if (options.on_figure) {
      options.on_figure(family.figures[0].name);
    }
    Recorder recorder;
    if (Status status = family.measure(context, recorder); !status.ok()) {
      return status.with_context(std::string(family.figures[0].name));
    }
    for (const FigureSpec& figure : family.figures) {
      if (wanted(figure.name, names)) {
        figures.push_back(finish(figure, recorder));
      }
    }
  }
  return figures;
}

}  // namespace changeover::bench
