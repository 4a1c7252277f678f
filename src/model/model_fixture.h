// For tests: configs and tensor lists that transformers wrote (tests/fixtures/models), and a plain
// interpreter of load plans.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <changeover/load_plan.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/model_file.h"
#include "model/plan_builder.h"

namespace changeover::model {

struct FixtureCase {
  nlohmann::json config;
  std::map<std::string, TensorSpec> tensors;
};

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<FixtureCase> fixture_cases(const std::string& name) {
  const std::string path = CHANGEOVER_SOURCE_DIR "/tests/fixtures/models/" + name + ".json";
  std::vector<FixtureCase> cases;
  const nlohmann::json document = nlohmann::json::parse(read_text(path));
  for (const auto& entry : document.at("cases")) {
    FixtureCase result{entry.at("config"), {}};
    for (const auto& tensor : entry.at("tensors")) {
      const TensorSpec spec{tensor[0], *dtype_from_safetensors_name(std::string(tensor[1])),
                            tensor[2].get<std::vector<int64_t>>()};
      result.tensors[spec.name] = spec;
    }
    cases.push_back(std::move(result));
  }
  EXPECT_FALSE(cases.empty()) << path;
  return cases;
}

// Through the file of the architecture, parse_only or not.
inline Result<LoadPlan> plan_of(const nlohmann::json& config, const PlanOptions& options) {
  const std::string architecture = config.at("architectures")[0];
  const auto document = base::JsonDocument::parse(config.dump());
  EXPECT_TRUE(document.ok());
  for (const auto& [name, text] : embedded_model_files()) {
    const auto file = ModelFile::parse(text);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    const auto& known = file->architectures;
    if (std::find(known.begin(), known.end(), architecture) != known.end()) {
      return build_plan(*file, document->root(), architecture, options);
    }
  }
  return Status(Code::kInvalidArgument, "no file for " + architecture);
}

inline PlanOptions rank_of(int32_t rank, int32_t size) {
  PlanOptions options;
  options.tp_rank = rank;
  options.tp_size = size;
  return options;
}

// The linear indices of a view's elements, in its order.
inline std::vector<int64_t> elements(const View& view) {
  std::vector<int64_t> result = {view.offset};
  for (const View::Dim& dim : view.dims) {
    std::vector<int64_t> next;
    for (const int64_t base : result) {
      for (int64_t i = 0; i < dim.extent; ++i) {
        next.push_back(base + i * dim.stride);
      }
    }
    result = std::move(next);
  }
  return result;
}

// A tensor of numbers that tell where each came from.
using Numbers = std::vector<int64_t>;
constexpr int64_t kUnwritten = -1;
constexpr int64_t kPaddingValue = 0;

inline int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

// Runs a plan over sources of numbers; element by element, each may be written once.
inline std::map<std::string, Numbers> interpret(const LoadPlan& plan,
                                                const std::map<std::string, Numbers>& sources) {
  std::map<std::string, Numbers> parameters;
  for (const TensorSpec& spec : plan.parameters) {
    parameters[spec.name].assign(static_cast<size_t>(product(spec.shape)), kUnwritten);
  }
  int64_t written_twice = 0;
  const auto write = [&](Numbers& target, int64_t at, int64_t value) {
    int64_t& element = target.at(static_cast<size_t>(at));
    written_twice += element == kUnwritten ? 0 : 1;
    element = value;
  };
  for (const Piece& piece : plan.pieces) {
    const Numbers& source = sources.at(plan.sources[piece.source].spec.name);
    Numbers& target = parameters.at(plan.parameters[piece.parameter].name);
    const std::vector<int64_t> from = elements(piece.source_view);
    const std::vector<int64_t> to = elements(piece.target_view);
    EXPECT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      write(target, to[i], source.at(static_cast<size_t>(from[i])));
    }
  }
  for (const Padding& padding : plan.paddings) {
    for (const int64_t at : elements(padding.view)) {
      write(parameters.at(plan.parameters[padding.parameter].name), at, kPaddingValue);
    }
  }
  EXPECT_EQ(written_twice, 0);
  for (const auto& [name, numbers] : parameters) {
    EXPECT_EQ(std::count(numbers.begin(), numbers.end(), kUnwritten), 0) << name;
  }
  return parameters;
}

// Distinct positive numbers for every element of every tensor.
inline std::map<std::string, Numbers> numbered(const std::map<std::string, TensorSpec>& tensors) {
  std::map<std::string, Numbers> result;
  int64_t next = 1;
  for (const auto& [name, spec] : tensors) {
    Numbers& numbers = result[name];
    for (int64_t i = 0; i < product(spec.shape); ++i) {
      numbers.push_back(next++);
    }
  }
  return result;
}

}  // namespace changeover::model
