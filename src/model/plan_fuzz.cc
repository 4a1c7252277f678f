// A load plan as JSON from a peer: refused, or proved and the same again after a round trip.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <changeover/load_plan.h>

#include "model/names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<LoadPlan> plan = parse_load_plan(text);
  if (!plan.ok()) {
    return 0;
  }
  const Result<LoadPlan> again = parse_load_plan(load_plan_to_json(*plan));
  if (!again.ok() || !(*again == *plan) || load_plan_digest(*again) != load_plan_digest(*plan)) {
    std::abort();
  }
  const Result<model::NameResolver> resolver = model::NameResolver::make(*plan);
  if (!resolver.ok()) {
    std::abort();  // The proof covers the names.
  }
  for (const Source& source : plan->sources) {
    (void)resolver->match(source.spec.name);
  }
  (void)resolver->match(text);
  return 0;
}
