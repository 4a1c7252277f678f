// How an engine deals out its experts: which ranks hold which of them, and in which slots.
//
// The buffers of a layer's experts are dealt out by slots: a rank holds the experts of its group,
// one per slot, each whole or cut over the ranks of the group. An expert that stands in several
// slots is replicated ("redundant"): one source feeds all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <changeover/status.h>

namespace changeover {

// A rank's share of the experts: `ep_size` groups of ranks hold different experts; in a group,
// `tp_size` ranks each hold a slice of every one of its experts.
struct ExpertShare {
  int32_t ep_rank = 0;  // Which group.
  int32_t ep_size = 1;
  int32_t tp_rank = 0;  // Which slice.
  int32_t tp_size = 1;
  bool operator==(const ExpertShare&) const = default;
};

// slots[group][slot] = logical expert. Groups may differ in their number of slots.
using ExpertSlots = std::vector<std::vector<int32_t>>;

// Which logical expert stands in which slot of which group, layer by layer.
struct ExpertPlacement {
  enum class Kind : uint8_t {
    kContiguous,  // 0, 1, ... by group; the first groups hold the remainder.
    kRoundRobin,  // Group g holds g, g + ep_size, ...
    kTable,       // As `slots` and `layers` say.
  };
  Kind kind = Kind::kContiguous;
  int32_t redundant = 0;  // Not kTable: so many more slots, for experts 0, 1, ... once more.
  ExpertSlots slots{};    // kTable: of every layer that `layers` does not name.
  std::map<int64_t, ExpertSlots> layers{};
  bool operator==(const ExpertPlacement&) const = default;
};

// The table of one layer, checked: ep_size groups of at least one slot each, every one of `experts`
// experts in a slot, no other. kInvalidArgument names layer, group and expert at fault.
Result<ExpertSlots> expert_slots(const ExpertPlacement& placement, int64_t layer, int64_t experts,
                                 int32_t ep_size);

// JSON with "format": 1 (docs/models.md): a generator or a table.
Result<ExpertPlacement> parse_expert_placement(std::string_view json);
std::string expert_placement_to_json(const ExpertPlacement& placement);

// The ranks of one engine, laid out twice. For all but the experts: `dp_size` copies side by side,
// each cut over `tp_size` ranks (rank = copy * tp_size + tp_rank). For the experts: `ep_size`
// groups of neighbouring ranks.
struct EngineShape {
  int32_t tp_size = 1;
  int32_t dp_size = 1;
  int32_t ep_size = 1;
  bool operator==(const EngineShape&) const = default;
};

// tp_size * dp_size; kInvalidArgument unless both are positive and ep_size divides it.
Result<int32_t> rank_count(const EngineShape& shape);

}  // namespace changeover
