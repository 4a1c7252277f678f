// The models that updates are measured with: real shapes or even ones, seeded bytes in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <changeover/load_plan.h>
#include <changeover/source.h>
#include <changeover/status.h>

namespace changeover::bench {

struct Model {
  LoadPlan plan;  // Of one rank that takes all of it.
  std::vector<NamedTensor> tensors;
  uint64_t bytes = 0;
  uint64_t tensor_bytes_max = 0;
};

// Models share their bytes: those of the largest one asked for, made once.
class Models {
 public:
  explicit Models(bool small) : small_(small) {}

  // Qwen3-0.6B's shapes: 310 tensors, 1.19 GB.
  Result<const Model*> dense();
  // A mixture of experts with Qwen3-30B-A3B's 18,867 tensors, about 1 GB.
  Result<const Model*> experts();
  // `count` tensors of `tensor_bytes` each (a multiple of 2) that fill one parameter, row by row.
  Result<const Model*> even(uint64_t count, uint64_t tensor_bytes);

  bool small() const { return small_; }

 private:
  Result<const Model*> keep(const std::string& key, Result<LoadPlan> plan);
  Result<const std::byte*> bytes(uint64_t count);

  bool small_;
  std::map<std::string, Model> models_;
  std::vector<std::vector<std::byte>> memory_;  // Each larger than the one before it.
};

}  // namespace changeover::bench
