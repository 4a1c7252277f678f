// What the files of figures have in common: a family measures one figure or several that come of
// the same updates, and records what it saw.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>

#include "bench/bench.h"
#include "bench/model.h"

namespace changeover::bench {

struct FigureSpec {
  std::string_view name;
  std::string_view unit;
  bool higher_is_better = true;
  std::string_view against;      // What the limit is; empty = there is none.
  std::optional<double> target;  // Of the ratio, or of the value where there is no limit.
};

// Samples of each figure and of its limit.
class Recorder {
 public:
  void add(std::string_view figure, double value) { values_[std::string(figure)].push_back(value); }
  void add_limit(std::string_view figure, double value) {
    limits_[std::string(figure)].push_back(value);
  }
  std::vector<double> values(std::string_view figure) const { return find(values_, figure); }
  std::vector<double> limits(std::string_view figure) const { return find(limits_, figure); }

 private:
  using Samples = std::map<std::string, std::vector<double>, std::less<>>;
  static std::vector<double> find(const Samples& samples, std::string_view figure) {
    const auto at = samples.find(figure);
    return at == samples.end() ? std::vector<double>() : at->second;
  }
  Samples values_;
  Samples limits_;
};

struct Context {
  const Options& options;
  Models& models;  // Made when first asked for, kept for the next figure.
  int rounds(int usual) const {
    return options.rounds > 0 ? options.rounds : options.quick ? (usual + 1) / 2 : usual;
  }
};

struct Family {
  std::span<const FigureSpec> figures;
  Status (*measure)(const Context& context, Recorder& recorder);
};

double median(std::vector<double> values);  // 0 for none.

// One per file of figures.
std::span<const Family> bandwidth_families();
std::span<const Family> tensor_families();
std::span<const Family> memory_families();
std::span<const Family> vote_families();
std::span<const Family> mode_families();
std::span<const Family> decode_families();

}  // namespace changeover::bench
