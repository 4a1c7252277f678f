// A model file and a config.json from a stranger, parted by a NUL: every plan they give is proved,
// or was refused before.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "model/plan_builder.h"

namespace {

// Numbers of 3 to 7 digits make loops that are within the ceilings, but long: too slow to learn
// anything from. Longer ones are refused, which is worth trying.
bool loops_long(std::string_view text) {
  size_t digits = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (digits >= 3 && digits <= 7) {
      return true;
    } else {
      digits = 0;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  if (cut == std::string_view::npos || loops_long(text)) {
    return 0;
  }
  const std::pair<std::string_view, std::string_view> file("fuzz.json", text.substr(0, cut));
  PlanOptions options;
  options.tp_size = 4;
  options.tp_rank = 3;
  const Result<LoadPlan> plan = model::plan_from_text(text.substr(cut + 1), {&file, 1}, options);
  if (plan.ok() && !prove_load_plan(*plan).ok()) {
    std::abort();
  }
  return 0;
}
