#include "cli/plan_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "cli/terminal.h"

namespace changeover::cli {
namespace {

// A name around one of its numbers; `number` is -1 where it has none.
struct Hole {
  std::string before;
  std::string after;
  int64_t number = -1;
};

// The last path segment that is a number, or the one before it, and so on (`skip`).
Hole hole_in(const std::string& name, int skip) {
  size_t end = name.size();
  while (true) {
    const size_t dot = end == 0 ? std::string::npos : name.rfind('.', end - 1);
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    int64_t number = -1;
    const auto read = std::from_chars(name.data() + begin, name.data() + end, number);
    const bool whole = read.ec == std::errc() && read.ptr == name.data() + end && number >= 0;
    if (whole && skip-- == 0) {
      return {name.substr(0, begin), name.substr(end), number};
    }
    if (dot == std::string::npos) {
      return {name, "", -1};
    }
    end = dot;
  }
}

// "5", "{0,1}", "{0..63}", "{0..126..2}": as a shell spells them.
std::string range_text(int64_t first, int64_t step, int64_t count) {
  const int64_t last = first + (count - 1) * step;
  if (count < 3) {
    return count == 1 ? std::to_string(first) : fmt::format("{{{},{}}}", first, last);
  }
  return fmt::format("{{{}..{}{}}}", first, last, step == 1 ? "" : fmt::format("..{}", step));
}

// The same, and "{0,2,1,3}" where the steps differ.
std::string numbers_text(const std::vector<int64_t>& numbers) {
  if (numbers.size() == 1) {
    return std::to_string(numbers[0]);
  }
  const int64_t step = numbers[1] - numbers[0];
  bool even = step > 0 && numbers.size() > 2;
  for (size_t i = 1; i < numbers.size(); ++i) {
    even = even && numbers[i] - numbers[i - 1] == step;
  }
  if (even) {
    return range_text(numbers.front(), step, static_cast<int64_t>(numbers.size()));
  }
  std::string text;
  for (const int64_t number : numbers) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", number);
  }
  return "{" + text + "}";
}

// Of a source that holds all experts: which of them a piece takes.
std::string experts_taken(const Source& source, const View& view) {
  const auto& shape = source.spec.shape;
  const bool experts = source.spec.name.find("expert") != std::string::npos;
  if (!experts || shape.size() != 3 || shape[1] * shape[2] == 0 || view.dims.empty()) {
    return "";
  }
  const int64_t expert = shape[1] * shape[2];
  const bool apart = view.dims.size() > 1 && view.dims[0].stride % expert == 0;
  int64_t elements = 1;
  for (const View::Dim& dim : view.dims) {
    elements *= dim.extent;
  }
  const int64_t count = apart ? view.dims[0].extent : std::max<int64_t>(elements / expert, 1);
  return fmt::format(
      "[{}]", range_text(view.offset / expert, apart ? view.dims[0].stride / expert : 1, count));
}

}  // namespace

std::string filled_from(const LoadPlan& plan, uint32_t parameter,
                        const std::vector<uint32_t>& pieces) {
  struct Entry {
    std::string part;
    Hole hole;
    std::vector<int64_t> numbers;
  };
  std::vector<Entry> entries;
  for (const uint32_t index : pieces) {
    const Piece& piece = plan.pieces[index];
    const Source& source = plan.sources[piece.source];
    Hole hole = hole_in(source.spec.name, 0);
    hole.after += experts_taken(source, piece.source_view);
    if (entries.empty() || entries.back().part != piece.part ||
        entries.back().hole.before != hole.before || entries.back().hole.after != hole.after) {
      entries.push_back({piece.part, hole, {}});
    }
    entries.back().numbers.push_back(hole.number);
  }
  std::string text;
  for (const Entry& entry : entries) {
    const bool one = std::adjacent_find(entry.numbers.begin(), entry.numbers.end(),
                                        std::not_equal_to<>()) == entry.numbers.end();
    const std::string numbers =
        entry.hole.number < 0 ? ""
                              : numbers_text(one ? std::vector{entry.hole.number} : entry.numbers);
    text += (text.empty() ? "" : " + ") + (entry.part.empty() ? "" : entry.part + "=") +
            printable(entry.hole.before + numbers + entry.hole.after);
  }
  for (const Padding& padding : plan.paddings) {
    if (padding.parameter == parameter) {
      int64_t elements = 1;
      for (const View::Dim& dim : padding.view.dims) {
        elements *= dim.extent;
      }
      text += fmt::format(" + {} elements of padding", elements);
    }
  }
  return text;
}

std::vector<std::string> folded(std::vector<std::string> names) {
  for (int skip = 0; skip < 2; ++skip) {
    std::map<std::pair<std::string, std::string>, std::vector<int64_t>> groups;
    std::vector<std::pair<std::string, std::string>> order;
    for (const std::string& name : names) {
      Hole hole = hole_in(name, skip);
      auto& numbers = groups[{hole.before, hole.after}];
      if (numbers.empty()) {
        order.emplace_back(hole.before, hole.after);
      }
      numbers.push_back(hole.number);
    }
    names.clear();
    for (const auto& key : order) {
      auto& numbers = groups[key];
      std::sort(numbers.begin(), numbers.end());
      const std::string text = numbers[0] < 0 ? "" : numbers_text(numbers);
      names.push_back(key.first + text + key.second);
    }
  }
  return names;
}

}  // namespace changeover::cli
