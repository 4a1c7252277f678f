// A small mixture of experts and the ranks of an engine that serves it, however they are laid out.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <changeover/checkpoint.h>
#include <changeover/load_plan.h>
#include <changeover/parameter_store.h>
#include <changeover/subscriber.h>

#include <gtest/gtest.h>

#include "tests/e2e/kit.h"

namespace changeover::e2e {

// How an engine's ranks share the model.
struct EngineLayout {
  EngineShape shape{};
  ExpertPlacement placement{};
  std::string source_form = "per_expert";
  uint64_t generation = 0;
};

inline ExpertPlacement table_of(ExpertSlots slots) {
  ExpertPlacement placement{};
  placement.kind = ExpertPlacement::Kind::kTable;
  placement.slots = std::move(slots);
  return placement;
}

// Two layers of Qwen3-MoE, the first of them dense; `experts` experts.
class MoeModel {
 public:
  explicit MoeModel(int experts = 8) {
    std::ofstream(folder_.path() / "config.json")
        << R"({"architectures":["Qwen3MoeForCausalLM"],"torch_dtype":"bfloat16",)"
        << R"("hidden_size":20,"intermediate_size":28,"moe_intermediate_size":12,)"
        << R"("num_hidden_layers":2,"vocab_size":50,"head_dim":6,"num_attention_heads":4,)"
        << R"("num_key_value_heads":2,"mlp_only_layers":[0],"num_experts":)" << experts << "}";
  }

  LoadPlan plan(const EngineLayout& layout, int rank) const {
    PlanOptions options;
    EXPECT_TRUE(place_rank(layout.shape, rank, options).ok());
    options.placement = layout.placement;
    options.source_form = layout.source_form;
    options.generation = layout.generation;
    auto plan = make_load_plan(folder_.path(), options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? std::move(plan).take() : LoadPlan();
  }

  // The tensors of a version, each byte of which depends on version, tensor and place.
  struct Weights {
    std::vector<TensorSpec> specs;
    std::vector<std::vector<std::byte>> bytes;

    std::vector<NamedTensor> tensors() const {
      std::vector<NamedTensor> out;
      for (size_t i = 0; i < specs.size(); ++i) {
        out.push_back({specs[i].name, {specs[i].dtype, specs[i].shape, {}, bytes[i].data()}});
      }
      return out;
    }
    std::unique_ptr<TensorSource> source() const {
      auto source = make_memory_source(tensors(), false);
      EXPECT_TRUE(source.ok()) << source.status().to_string();
      return std::move(source).take();
    }
    size_t largest() const {
      size_t largest = 0;
      for (const auto& tensor : bytes) {
        largest = std::max(largest, tensor.size());
      }
      return largest;
    }
  };
  Weights weights(int64_t version, const std::string& source_form = "per_expert") const {
    Weights weights;
    const LoadPlan whole = plan({.source_form = source_form}, 0);
    for (const Source& source : whole.sources) {
      weights.specs.push_back(source.spec);
      uint64_t state = static_cast<uint64_t>(version) * 1000003 + weights.specs.size() * 7919;
      auto& bytes = weights.bytes.emplace_back(
          static_cast<size_t>(*byte_count(source.spec.dtype, source.spec.shape)));
      for (std::byte& byte : bytes) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        byte = static_cast<std::byte>(state >> 56);
      }
    }
    return weights;
  }

  std::vector<Digest> cold_digests(const Weights& weights, const LoadPlan& plan) const {
    const auto file = folder_.path() / "cold.safetensors";
    EXPECT_TRUE(write_safetensors(file, weights.tensors(), {}).ok());
    auto checkpoint = Checkpoint::open(file);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    auto store = cold_load(plan, **checkpoint);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? live_digests(**store) : std::vector<Digest>();
  }

 private:
  TemporaryFolder folder_;
};

// One rank, with its own plan and memory, started.
class PlannedRank {
 public:
  PlannedRank(LoadPlan plan, const Endpoint& endpoint, int rank, int ranks,
              Mode mode = Mode::kJournal, SubscriberOptions options = {})
      : plan_(std::move(plan)) {
    options.endpoint = endpoint;
    options.engine = "a";
    options.rank = rank;
    options.engine_size = ranks;
    options.mode = mode;
    options.log = log_.sink();
    auto store = ParameterStore::allocate(plan_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(store).take();
    auto subscriber = Subscriber::open(std::move(options), plan_, *store_);
    EXPECT_TRUE(subscriber.ok()) << subscriber.status().to_string();
    subscriber_ = std::move(subscriber).take();
    EXPECT_TRUE(subscriber_->start().ok());
  }

  Subscriber* operator->() { return subscriber_.get(); }
  ParameterStore& store() { return *store_; }
  const LoadPlan& plan() const { return plan_; }
  // One element of each slot of a buffer of 16-bit elements, and that all of the slot are alike.
  std::vector<int> slots(const std::string& buffer) {
    std::vector<int> out;
    for (const LiveParameter& parameter : store_->half(subscriber_->fence().half())) {
      if (!parameter.spec.name.ends_with(buffer)) {
        continue;
      }
      const auto slots = static_cast<size_t>(parameter.spec.shape[0]);
      const auto bytes =
          static_cast<size_t>(*byte_count(parameter.spec.dtype, parameter.spec.shape)) / slots;
      for (size_t slot = 0; slot < slots; ++slot) {
        const std::byte* data = parameter.data + slot * bytes;
        out.push_back(static_cast<int>(data[0]));
        EXPECT_EQ(std::count(data, data + bytes, data[0]), static_cast<std::ptrdiff_t>(bytes));
      }
    }
    return out;
  }
  std::string log() const { return log_.all(); }
  std::vector<Digest> live() { return live_digests(*store_, subscriber_->fence().half()); }

  // Waits up to ten seconds until steps may run on this version.
  testing::AssertionResult serves(int64_t version) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do {
      auto guard = subscriber_->fence().acquire(std::chrono::milliseconds(100));
      if (guard.ok() && guard->version().version == version) {
        return testing::AssertionSuccess();
      }
    } while (std::chrono::steady_clock::now() < until);
    return testing::AssertionFailure() << subscriber_->fence().reason() << "\n" << log_.all();
  }

 private:
  LoadPlan plan_;
  Log log_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Subscriber> subscriber_;
};

}  // namespace changeover::e2e
