// An expression of a model file, over a config that has every kind of value.
#include <cstdint>
#include <string_view>

#include "model/expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace changeover;
  static const base::JsonDocument config =
      base::JsonDocument::parse(R"({"a": 7, "b": [1, "x", null, 2.5], "c": {"d": true}, "e": null,
                                    "f": "x", "g": -9223372036854775808})")
          .take();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<model::Expression> expression = model::Expression::parse(text);
  if (expression.ok()) {
    model::Scope scope(config.root());
    (void)expression->evaluate(scope);
  }
  return 0;
}
