// A placement of experts as JSON from a file or a rank: refused, or the same again after a round
// trip, and every table that it gives is whole.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <changeover/experts.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  const auto placement =
      parse_expert_placement(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!placement.ok()) {
    return 0;
  }
  const auto again = parse_expert_placement(expert_placement_to_json(*placement));
  if (!again.ok() || !(*again == *placement)) {
    std::abort();
  }
  for (const int32_t groups : {1, 2, 3}) {
    for (const int64_t layer : {0, 7}) {
      const auto slots = expert_slots(*placement, layer, 4, groups);
      if (slots.ok() && slots->size() != static_cast<size_t>(groups)) {
        std::abort();
      }
    }
  }
  return 0;
}
