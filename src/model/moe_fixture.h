// For tests: mixtures of experts as transformers and an engine hold them (tests/fixtures/moe).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <changeover/load_plan.h>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "model/model_fixture.h"

namespace changeover::model {

struct MoeFixture {
  nlohmann::json document;
  const nlohmann::json& config() const { return document.at("config"); }

  explicit MoeFixture(const std::string& name)
      : document(nlohmann::json::parse(
            read_text(CHANGEOVER_SOURCE_DIR "/tests/fixtures/moe/" + name + ".json"))) {}

  std::map<std::string, TensorSpec> tensors(const char* form) const {
    std::map<std::string, TensorSpec> result;
    for (const auto& entry : document.at(form)) {
      const TensorSpec spec{entry[0], DType::kBF16, entry[1].get<std::vector<int64_t>>()};
      result[spec.name] = spec;
    }
    return result;
  }

  // The bits of every tensor of the checkpoint, by the rule in tools/make_moe_fixtures.py.
  std::map<std::string, Numbers> checkpoint() const {
    std::map<std::string, Numbers> result;
    uint32_t index = 0;
    for (const auto& [name, spec] : tensors("checkpoint")) {
      Numbers& numbers = result[name];
      for (int64_t i = 0; i < product(spec.shape); ++i) {
        const uint32_t mixed = (index << 20 | static_cast<uint32_t>(i)) * 2654435761u;
        numbers.push_back(mixed >> 16);
      }
      ++index;
    }
    return result;
  }
};

// Of 16-bit elements.
inline std::string digest_of(const Numbers& numbers) {
  const std::vector<uint16_t> elements(numbers.begin(), numbers.end());
  return base::digest(std::as_bytes(std::span(elements))).to_text();
}

}  // namespace changeover::model
