// From the name a tensor arrives under to the source of the plan it feeds (case B17).
//
// The plan declares the rules: whole path segments that are dropped wherever they stand, those that
// may stand on either side or not (they are left out of account on both, case B18), then the
// longest of the prefixes that matches is stripped (once), then a prefix is added. Nothing is
// guessed: a name that no rule brings to a source, an alias or an ignorable pattern is unmatched.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/status.h>

namespace changeover::model {

struct NameMatch {
  enum class Kind : uint8_t { kSource, kIgnorable, kUnmatched };
  Kind kind = Kind::kUnmatched;
  uint32_t source = 0;  // kSource: index into LoadPlan::sources.
  // kSource: dense index over every name of every source, 0 .. name_count()-1; a source's own name
  // and each of its aliases have one each. Two names of one update with one index are equal after
  // stripping (see collision()).
  uint32_t name_index = 0;
  bool alias = false;  // kSource: came under one of the source's other names (case B16).
};

// Both sides of a comparison of the names on offer with the names a plan wants.
struct NameReport {
  std::vector<std::string> unmatched;   // Offered, wanted by nobody.
  std::vector<std::string> missing;     // Sources that no offered name feeds.
  std::vector<std::string> collisions;  // "A and B are both C", two names equal after stripping.
  size_t matched = 0;                   // Sources with at least one name.
  size_t ignored = 0;
  size_t offered = 0;

  // ok only if every offered name is used or ignorable, every source has one, and none collide;
  // else kInvalidArgument that lists names of both sides. Never ok for "0 of N".
  Status to_status() const;
};

// Immutable after make(): match() from any thread.
class NameResolver {
 public:
  // kInvalidArgument if two sources share a name, or the rules can lead no name to some source.
  // Copies what it needs; the plan may go.
  static Result<NameResolver> make(const LoadPlan& plan);

  // Allocates nothing.
  NameMatch match(std::string_view incoming) const;

  size_t source_count() const { return source_names_.size(); }
  size_t name_count() const { return names_.size(); }
  // A source's own name.
  const std::string& source_name(uint32_t source) const { return source_names_[source]; }

  // kInvalidArgument: "A" and "B" came in one update and are equal after stripping.
  static Status collision(std::string_view first, std::string_view second);

  // Compares a whole list of names with the plan, before data moves.
  NameReport compare(std::span<const std::string> offered) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct Entry {
    uint32_t source = 0;
    uint32_t name_index = 0;
    bool alias = false;
  };
  // add_prefix with its '.', and the name.
  using Buffer = std::array<char, 2 * kTensorNameBytesMax + 1>;

  Status take_rules(const LoadPlan& plan);
  // `spelled`: the names so far, by name_index.
  Status add_name(const std::string& name, Entry entry, std::vector<std::string>& spelled);
  Status check_reachable(std::string_view name) const;
  bool is_dropped(std::string_view segment) const;
  bool is_optional(std::string_view segment) const;
  std::string without_optional(std::string_view name) const;
  bool is_ignorable(std::string_view name) const;
  // The incoming name after the rules, in `buffer` or in `incoming` itself; empty = nothing is
  // left.
  std::string_view canonical(std::string_view incoming, Buffer& buffer) const;

  std::unordered_map<std::string, Entry, Hash, std::equal_to<>> names_;
  std::vector<std::string> source_names_;
  std::vector<std::string> drop_segments_;
  std::vector<std::string> optional_segments_;
  std::vector<std::string> strip_prefixes_;   // Longest first, each with its trailing '.'.
  std::string add_prefix_;                    // Empty, or with its trailing '.'.
  std::vector<std::string> ignorable_exact_;  // Sorted; patterns without '*'.
  std::vector<std::string> ignorable_patterns_;
};

// '*' stands for any run of characters without '.'; everything else for itself.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace changeover::model
