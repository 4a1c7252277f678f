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

  // The same as transformers holds it: experts of a layer in one tensor, gate above up. (Names sort
  // by layer, expert, and gate before up.)
  std::map<std::string, Numbers> state_dict() const {
    std::map<std::string, Numbers> result;
    for (const auto& [name, numbers] : checkpoint()) {
      std::string own = name;
      const std::string mixtral = "block_sparse_moe";
      if (const size_t at = own.find(mixtral); at != std::string::npos) {
        own.replace(at, mixtral.size(), "mlp");
      }
      if (const size_t at = own.find(".experts."); at != std::string::npos) {
        const bool down = own.ends_with(".down_proj.weight") || own.ends_with(".w2.weight");
        own = own.substr(0, at) + (down ? ".experts.down_proj" : ".experts.gate_up_proj");
      }
      Numbers& all = result[own];
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    return result;
  }
};

// The options of one rank of an engine of the fixture.
inline PlanOptions fixture_rank(const nlohmann::json& engine, int32_t rank) {
  PlanOptions options;
  const EngineShape shape{engine.at("tp"), engine.at("dp"), engine.at("ep")};
  EXPECT_TRUE(place_rank(shape, rank, options).ok());
  nlohmann::json placement = engine.at("placement");
  if (placement.is_string()) {
    placement = {{"format", 1}, {"generator", placement}, {"redundant", engine.at("redundant")}};
  }
  const auto parsed = parse_expert_placement(placement.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  options.placement = *parsed;
  return options;
}

// Of 16-bit elements.
inline std::string digest_of(const Numbers& numbers) {
  const std::vector<uint16_t> elements(numbers.begin(), numbers.end());
  return base::digest(std::as_bytes(std::span(elements))).to_text();
}

}  // namespace changeover::model
