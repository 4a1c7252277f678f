#include "model/names.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace changeover::model {
namespace {

constexpr size_t kListedMax = 8;
constexpr size_t kRulesMax = 4096;

// The part up to the next '.', which is removed from `rest` with its '.'.
std::string_view take_segment(std::string_view& rest) {
  const size_t dot = rest.find('.');
  const std::string_view segment = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return segment;
}

bool segment_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListedMax); ++i) {
    text += i == 0 ? "" : ", ";
    text += names[i];
  }
  if (names.size() > kListedMax) {
    text += fmt::format(" and {} more", names.size() - kListedMax);
  }
  return text;
}

Status check_rule(std::string_view what, std::string_view text) {
  if (text.empty() || text == "." || text.front() == '.' ||
      text.find("..") != std::string_view::npos || text.size() > kTensorNameBytesMax) {
    return {Code::kInvalidArgument,
            fmt::format("{} \"{}\": must be 1 to {} bytes of whole path segments", what,
                        text.substr(0, 64), kTensorNameBytesMax)};
  }
  return {};
}

Status take_segments(std::string_view what, const std::vector<std::string>& segments,
                     std::vector<std::string>& out) {
  for (const std::string& segment : segments) {
    CHANGEOVER_TRY(check_rule(what, segment));
    if (segment.find('.') != std::string::npos) {
      return {Code::kInvalidArgument,
              fmt::format("{} \"{}\": one segment without '.' each; use strip_prefixes for a "
                          "longer prefix",
                          what, segment)};
    }
    out.push_back(segment);
  }
  return {};
}

std::string with_dot(std::string text) {
  if (!text.empty() && text.back() != '.') {
    text += '.';
  }
  return text;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // Segment by segment, so that the work is bounded by the product of two segments' lengths.
  if (std::count(pattern.begin(), pattern.end(), '.') !=
      std::count(name.begin(), name.end(), '.')) {
    return false;
  }
  while (!pattern.empty() || !name.empty()) {
    if (!segment_matches(take_segment(pattern), take_segment(name))) {
      return false;
    }
  }
  return true;
}

Status NameReport::to_status() const {
  if (unmatched.empty() && missing.empty() && collisions.empty() && matched > 0) {
    return {};
  }
  std::string text =
      fmt::format("{} of {} wanted tensors are offered", matched, matched + missing.size());
  if (!collisions.empty()) {
    text += fmt::format("; equal after the name rules: {}", listed(collisions));
  }
  if (!unmatched.empty()) {
    text += fmt::format("; offered but not wanted ({}): {}", unmatched.size(), listed(unmatched));
  }
  if (!missing.empty()) {
    text += fmt::format("; wanted but not offered ({}): {}", missing.size(), listed(missing));
  }
  text +=
      "; if only the spelling differs, declare how: drop_segments, strip_prefixes or add_prefix of "
      "the plan (--drop-segment, --strip-prefix, --add-prefix)";
  return {Code::kInvalidArgument, text};
}

Result<NameResolver> NameResolver::make(const LoadPlan& plan) {
  NameResolver resolver;
  CHANGEOVER_TRY(resolver.take_rules(plan));
  resolver.source_names_.reserve(plan.sources.size());
  uint32_t name_index = 0;
  std::vector<std::string> spelled;
  for (uint32_t i = 0; i < plan.sources.size(); ++i) {
    const Source& source = plan.sources[i];
    CHANGEOVER_TRY(resolver.add_name(source.spec.name, {i, name_index++, false}, spelled));
    for (const std::string& alias : source.aliases) {
      CHANGEOVER_TRY(resolver.add_name(alias, {i, name_index++, true}, spelled));
    }
    resolver.source_names_.push_back(source.spec.name);
  }
  return resolver;
}

Status NameResolver::take_rules(const LoadPlan& plan) {
  const size_t rules =
      plan.drop_segments.size() + plan.strip_prefixes.size() + plan.ignorable.size();
  if (plan.drop_segments.size() > kRulesMax || plan.optional_segments.size() > kRulesMax ||
      plan.strip_prefixes.size() > kRulesMax) {
    return {Code::kInvalidArgument,
            fmt::format("name rules: {} of them, at most {} of a kind", rules, kRulesMax)};
  }
  CHANGEOVER_TRY(take_segments("drop_segments", plan.drop_segments, drop_segments_));
  CHANGEOVER_TRY(take_segments("optional_segments", plan.optional_segments, optional_segments_));
  for (const std::string& prefix : plan.strip_prefixes) {
    CHANGEOVER_TRY(check_rule("strip_prefixes", prefix));
    strip_prefixes_.push_back(with_dot(prefix));
  }
  std::stable_sort(strip_prefixes_.begin(), strip_prefixes_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (!plan.add_prefix.empty()) {
    CHANGEOVER_TRY(check_rule("add_prefix", plan.add_prefix));
    add_prefix_ = with_dot(plan.add_prefix);
  }
  for (const std::string& pattern : plan.ignorable) {
    CHANGEOVER_TRY(check_rule("ignorable", pattern));
    auto& list = pattern.find('*') == std::string::npos ? ignorable_exact_ : ignorable_patterns_;
    list.push_back(without_optional(pattern));
  }
  if (ignorable_patterns_.size() > kRulesMax) {
    return {Code::kInvalidArgument, fmt::format("ignorable: {} patterns with '*', at most {}",
                                                ignorable_patterns_.size(), kRulesMax)};
  }
  std::sort(ignorable_exact_.begin(), ignorable_exact_.end());
  return {};
}

Status NameResolver::add_name(const std::string& name, Entry entry,
                              std::vector<std::string>& spelled) {
  CHANGEOVER_TRY(check_reachable(name));
  const auto [at, added] = names_.emplace(without_optional(name), entry);
  if (!added && spelled[at->second.name_index] == name) {
    return {Code::kInvalidArgument,
            fmt::format("source \"{}\": the plan names it twice (as a source or an alias)", name)};
  }
  if (!added) {
    return {Code::kInvalidArgument,
            fmt::format("sources \"{}\" and \"{}\" are ambiguous: they differ in optional segments "
                        "alone",
                        spelled[at->second.name_index], name)};
  }
  spelled.push_back(name);
  return {};
}

Status NameResolver::check_reachable(std::string_view name) const {
  std::string_view rest = name;
  if (name.empty() || name.size() > kTensorNameBytesMax) {
    return {Code::kInvalidArgument, fmt::format("source \"{}\": a name has 1 to {} bytes",
                                                name.substr(0, 64), kTensorNameBytesMax)};
  }
  if (!rest.starts_with(add_prefix_) || rest.size() == add_prefix_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("source \"{}\": can never match, every name gets the prefix \"{}\"", name,
                        add_prefix_)};
  }
  rest.remove_prefix(add_prefix_.size());
  if (without_optional(rest).empty()) {
    return {Code::kInvalidArgument,
            fmt::format("source \"{}\": can never match, nothing is left of it", name)};
  }
  while (!rest.empty()) {
    const std::string_view segment = take_segment(rest);
    if (is_dropped(segment)) {
      return {Code::kInvalidArgument,
              fmt::format("source \"{}\": can never match, the rules drop every segment \"{}\"",
                          name, segment)};
    }
  }
  return {};
}

bool NameResolver::is_dropped(std::string_view segment) const {
  return std::find(drop_segments_.begin(), drop_segments_.end(), segment) != drop_segments_.end();
}

bool NameResolver::is_optional(std::string_view segment) const {
  return std::find(optional_segments_.begin(), optional_segments_.end(), segment) !=
         optional_segments_.end();
}

std::string NameResolver::without_optional(std::string_view name) const {
  if (optional_segments_.empty()) {
    return std::string(name);
  }
  std::string kept;
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view segment = take_segment(rest);
    if (!is_optional(segment)) {
      kept += kept.empty() ? "" : ".";
      kept += segment;
    }
  }
  return kept;
}

bool NameResolver::is_ignorable(std::string_view name) const {
  if (std::binary_search(ignorable_exact_.begin(), ignorable_exact_.end(), name, std::less<>())) {
    return true;
  }
  return std::any_of(ignorable_patterns_.begin(), ignorable_patterns_.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

std::string_view NameResolver::canonical(std::string_view incoming, Buffer& buffer) const {
  if (drop_segments_.empty() && optional_segments_.empty() && strip_prefixes_.empty() &&
      add_prefix_.empty()) {
    return incoming;
  }
  // The prefix first: what is stripped is stripped from what stands after it.
  std::memcpy(buffer.data(), add_prefix_.data(), add_prefix_.size());
  char* const start = buffer.data() + add_prefix_.size();
  size_t size = 0;
  std::string_view rest = incoming;
  while (!rest.empty()) {
    const bool last = rest.find('.') == std::string_view::npos;
    const std::string_view segment = take_segment(rest);
    if (is_dropped(segment) || is_optional(segment)) {
      size -= last && size > 0 ? 1 : 0;  // The '.' before it goes too.
      continue;
    }
    std::memcpy(start + size, segment.data(), segment.size());
    size += segment.size();
    if (!last) {
      start[size++] = '.';
    }
  }
  size_t stripped = 0;
  for (const std::string& prefix : strip_prefixes_) {
    if (size > prefix.size() && std::string_view(start, size).starts_with(prefix)) {
      stripped = prefix.size();
      break;
    }
  }
  if (stripped > 0) {
    size -= stripped;
    std::memmove(start, start + stripped, size);
  }
  return size == 0 ? std::string_view()
                   : std::string_view(buffer.data(), add_prefix_.size() + size);
}

NameMatch NameResolver::match(std::string_view incoming) const {
  if (incoming.empty() || incoming.size() > kTensorNameBytesMax) {
    return {};
  }
  Buffer buffer;
  const std::string_view name = canonical(incoming, buffer);
  if (name.empty()) {
    return {};
  }
  if (const auto found = names_.find(name); found != names_.end()) {
    const Entry& entry = found->second;
    return {NameMatch::Kind::kSource, entry.source, entry.name_index, entry.alias};
  }
  return {is_ignorable(name) ? NameMatch::Kind::kIgnorable : NameMatch::Kind::kUnmatched};
}

Status NameResolver::collision(std::string_view first, std::string_view second) {
  return {Code::kInvalidArgument,
          fmt::format("\"{}\" and \"{}\" are two names equal after stripping; send one of them, or "
                      "declare narrower name rules",
                      first, second)};
}

NameReport NameResolver::compare(std::span<const std::string> offered) const {
  NameReport report;
  report.offered = offered.size();
  std::vector<const std::string*> first_with(name_count(), nullptr);
  std::vector<bool> fed(source_count(), false);
  for (const std::string& name : offered) {
    const NameMatch found = match(name);
    if (found.kind == NameMatch::Kind::kUnmatched) {
      report.unmatched.push_back(name);
    } else if (found.kind == NameMatch::Kind::kIgnorable) {
      ++report.ignored;
    } else if (const std::string*& first = first_with[found.name_index]; first != nullptr) {
      report.collisions.push_back(fmt::format("\"{}\" and \"{}\" are both \"{}\"", *first, name,
                                              source_names_[found.source]));
    } else {
      first = &name;
      fed[found.source] = true;
    }
  }
  for (size_t i = 0; i < fed.size(); ++i) {
    if (fed[i]) {
      ++report.matched;
    } else {
      report.missing.push_back(source_names_[i]);
    }
  }
  return report;
}

}  // namespace changeover::model
