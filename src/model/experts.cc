// Tables of experts: made by a generator or read, and always checked.
#include <algorithm>
#include <charconv>

#include <changeover/experts.h>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "model/fields.h"
#include "model/plan_limits.h"

namespace changeover {
namespace {

using base::JsonValue;
using model::Fields;
using Kind = ExpertPlacement::Kind;

Status invalid(std::string text) {
  return {Code::kInvalidArgument, text};
}

// Slot p of all groups together holds expert p, and from there on the first experts once more.
ExpertSlots generate(const ExpertPlacement& placement, int64_t experts, int32_t ep_size) {
  const int64_t slots = experts + placement.redundant;
  ExpertSlots table(static_cast<size_t>(ep_size));
  const int64_t base = slots / ep_size;
  const int64_t remainder = slots % ep_size;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int64_t in_longer = remainder * (base + 1);
    const int64_t contiguous =
        slot < in_longer ? slot / (base + 1) : remainder + (slot - in_longer) / base;
    const int64_t group = placement.kind == Kind::kRoundRobin ? slot % ep_size : contiguous;
    table[static_cast<size_t>(group)].push_back(static_cast<int32_t>(slot % experts));
  }
  return table;
}

Status check_table(const ExpertSlots& table, int64_t experts, int32_t ep_size) {
  if (table.size() != static_cast<size_t>(ep_size)) {
    return invalid(
        fmt::format("the placement has {} groups, ep_size is {}", table.size(), ep_size));
  }
  std::vector<bool> placed(static_cast<size_t>(experts), false);
  for (size_t group = 0; group < table.size(); ++group) {
    if (table[group].empty()) {
      return invalid(fmt::format("group {} has no slot; choose a smaller ep_size", group));
    }
    for (const int32_t expert : table[group]) {
      if (expert < 0 || expert >= experts) {
        return invalid(fmt::format("group {} has a slot for expert {}, there are 0 .. {}", group,
                                   expert, experts - 1));
      }
      placed[static_cast<size_t>(expert)] = true;
    }
  }
  const auto missing = std::find(placed.begin(), placed.end(), false);
  if (missing != placed.end()) {
    return invalid(fmt::format("expert {} stands in no slot", missing - placed.begin()));
  }
  return {};
}

Result<ExpertSlots> read_slots(JsonValue value) {
  if (!value.is(base::JsonKind::kArray) || value.size() > static_cast<size_t>(model::kTpSizeMax)) {
    return model::wrong_kind("slots", "an array of groups", value);
  }
  ExpertSlots table;
  for (const JsonValue group : value.elements()) {
    if (!group.is(base::JsonKind::kArray)) {
      return model::wrong_kind("slots", "an array of arrays of experts", group);
    }
    table.emplace_back();
    for (const JsonValue slot : group.elements()) {
      const auto expert = slot.integer();
      if (!expert || *expert < 0 || *expert >= model::kLoopMax) {
        return Status(
            Code::kInvalidArgument,
            fmt::format("\"slots\": group {}, slot {}: an expert is an integer of 0 .. {}",
                        table.size() - 1, table.back().size(), model::kLoopMax - 1));
      }
      table.back().push_back(static_cast<int32_t>(*expert));
    }
  }
  return table;
}

Status read_layers(JsonValue value, ExpertPlacement& placement) {
  if (!value.is(base::JsonKind::kObject)) {
    return model::wrong_kind("layers", "an object of layer: slots", value);
  }
  for (const base::JsonMember member : value.members()) {
    const std::string_view key = member.key;
    int64_t layer = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), layer);
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() ||
        key != std::to_string(layer)) {
      return invalid(fmt::format("\"layers\": {} is no number of a layer", base::quoted(key)));
    }
    CHANGEOVER_TRY_ASSIGN(placement.layers[layer], read_slots(member.value));
  }
  return {};
}

std::string slots_text(const ExpertSlots& table) {
  std::string text;
  for (const auto& group : table) {
    text += fmt::format("{}[{}]", text.empty() ? "" : ",", fmt::join(group, ","));
  }
  return "[" + text + "]";
}

}  // namespace

namespace model {

Result<ExpertShare> read_expert_share(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields fields,
                        Fields::make(value, {"ep_rank", "ep_size", "tp_rank", "tp_size"}));
  ExpertShare experts;
  for (const auto& [key, number] :
       {std::pair<std::string_view, int32_t*>{"ep_rank", &experts.ep_rank},
        {"ep_size", &experts.ep_size},
        {"tp_rank", &experts.tp_rank},
        {"tp_size", &experts.tp_size}}) {
    CHANGEOVER_TRY_ASSIGN(const int64_t read, fields.integer(key, 0, kTpSizeMax));
    *number = static_cast<int32_t>(read);
  }
  return experts;
}

Result<ExpertPlacement> read_expert_placement(JsonValue value) {
  CHANGEOVER_TRY_ASSIGN(const Fields root, Fields::make(value, {"format", "generator", "redundant",
                                                                "slots", "layers"}));
  CHANGEOVER_TRY(root.integer("format", 1, 1).status());
  ExpertPlacement placement;
  const auto slots = root.find("slots");
  const auto layers = root.find("layers");
  if (root.find("generator")) {
    CHANGEOVER_TRY_ASSIGN(const std::string_view name, root.string("generator"));
    if ((name != "contiguous" && name != "round_robin") || slots || layers) {
      return invalid("\"generator\" is contiguous or round_robin, and goes without a table");
    }
    placement.kind = name == "contiguous" ? Kind::kContiguous : Kind::kRoundRobin;
    CHANGEOVER_TRY_ASSIGN(const int64_t redundant, root.integer_or("redundant", 0, kLoopMax, 0));
    placement.redundant = static_cast<int32_t>(redundant);
    return placement;
  }
  placement.kind = Kind::kTable;
  if ((!slots && !layers) || root.find("redundant")) {
    return invalid("give a \"generator\" (with \"redundant\"), or \"slots\" and \"layers\"");
  }
  if (slots) {
    CHANGEOVER_TRY_ASSIGN(placement.slots, read_slots(*slots));
  }
  if (layers) {
    CHANGEOVER_TRY(read_layers(*layers, placement));
  }
  return placement;
}

}  // namespace model

Result<ExpertSlots> expert_slots(const ExpertPlacement& placement, int64_t layer, int64_t experts,
                                 int32_t ep_size) {
  if (experts < 1 || experts > model::kLoopMax || ep_size < 1 || ep_size > model::kTpSizeMax ||
      placement.redundant < 0 || placement.redundant > model::kLoopMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} experts and {} redundant ones in {} groups: at least one expert "
                              "and group, at most {} of each",
                              experts, placement.redundant, ep_size, model::kLoopMax));
  }
  ExpertSlots table;
  if (placement.kind != Kind::kTable) {
    if (experts + placement.redundant < ep_size) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} slots for experts in {} groups: choose a smaller ep_size",
                                experts + placement.redundant, ep_size));
    }
    return generate(placement, experts, ep_size);
  }
  const auto own = placement.layers.find(layer);
  const ExpertSlots& chosen = own == placement.layers.end() ? placement.slots : own->second;
  Status status = check_table(chosen, experts, ep_size);
  return status.ok() ? Result<ExpertSlots>(chosen)
                     : status.with_context(fmt::format("experts of layer {}", layer));
}

Result<ExpertPlacement> parse_expert_placement(std::string_view json) {
  Result<base::JsonDocument> document =
      base::JsonDocument::parse(json, {.bytes_max = model::kConfigBytesMax, .depth_max = 8});
  if (!document.ok()) {
    return document.status().with_context("expert placement");
  }
  Result<ExpertPlacement> placement = model::read_expert_placement(document->root());
  return placement.ok() ? std::move(placement)
                        : placement.status().with_context("expert placement");
}

std::string expert_placement_to_json(const ExpertPlacement& placement) {
  if (placement.kind != Kind::kTable) {
    return fmt::format(R"({{"format":1,"generator":"{}","redundant":{}}})",
                       placement.kind == Kind::kContiguous ? "contiguous" : "round_robin",
                       placement.redundant);
  }
  std::string layers;
  for (const auto& [layer, slots] : placement.layers) {
    layers += fmt::format(R"({}"{}":{})", layers.empty() ? "" : ",", layer, slots_text(slots));
  }
  return fmt::format(R"({{"format":1,"slots":{},"layers":{{{}}}}})", slots_text(placement.slots),
                     layers);
}

Result<int32_t> rank_count(const EngineShape& shape) {
  const int64_t tp = shape.tp_size;
  const int64_t dp = shape.dp_size;
  if (tp < 1 || dp < 1 || tp > model::kTpSizeMax || dp > model::kTpSizeMax ||
      tp * dp > model::kTpSizeMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("tp {} x dp {}: both at least 1, together at most {} ranks", tp, dp,
                              model::kTpSizeMax));
  }
  if (shape.ep_size < 1 || tp * dp % shape.ep_size != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("ep {} does not divide the engine's {} ranks (tp {} x dp {})",
                              shape.ep_size, tp * dp, tp, dp));
  }
  return static_cast<int32_t>(tp * dp);
}

}  // namespace changeover
