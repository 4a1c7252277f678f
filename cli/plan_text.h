// Names of a plan's sources, short enough to read: those that differ in one number become one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <changeover/load_plan.h>

namespace changeover::cli {

// "gate=...experts.{0..63}.gate_proj.weight + up=...": what fills a parameter, slot by slot.
std::string filled_from(const LoadPlan& plan, uint32_t parameter,
                        const std::vector<uint32_t>& pieces);

// Names that differ only in numbers as one: "layers.{0..47}.experts.{1..127..2}.up_proj.weight".
std::vector<std::string> folded(std::vector<std::string> names);

}  // namespace changeover::cli
