#include "bench/model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace changeover::bench {
namespace {

// As far as shapes go. The small ones have the same form.
constexpr const char* kDense = R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3",
"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,
"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true,
"torch_dtype":"bfloat16"})";
constexpr const char* kDenseSmall = R"({"architectures":["Qwen3ForCausalLM"],
"model_type":"qwen3","hidden_size":128,"intermediate_size":384,"num_hidden_layers":4,
"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"vocab_size":1024,
"tie_word_embeddings":true,"torch_dtype":"bfloat16"})";
constexpr const char* kExperts = R"({"architectures":["Qwen3MoeForCausalLM"],
"model_type":"qwen3_moe","hidden_size":256,"intermediate_size":512,"moe_intermediate_size":96,
"num_experts":128,"num_hidden_layers":48,"num_attention_heads":8,"num_key_value_heads":4,
"head_dim":32,"vocab_size":51200,"tie_word_embeddings":false,"decoder_sparse_step":1,
"mlp_only_layers":[],"torch_dtype":"bfloat16"})";
constexpr const char* kExpertsSmall = R"({"architectures":["Qwen3MoeForCausalLM"],
"model_type":"qwen3_moe","hidden_size":64,"intermediate_size":128,"moe_intermediate_size":32,
"num_experts":8,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"head_dim":16,"vocab_size":512,"tie_word_embeddings":false,"decoder_sparse_step":1,
"mlp_only_layers":[],"torch_dtype":"bfloat16"})";

Result<LoadPlan> plan_of(const char* config) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("changeover-bench-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << config;
  auto plan = make_load_plan(path, {});
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return plan;
}

LoadPlan even_plan(uint64_t count, uint64_t tensor_bytes) {
  const auto columns = static_cast<int64_t>(tensor_bytes / 2);
  LoadPlan plan;
  plan.architecture = "even";
  plan.parameters = {{"rows", DType::kBF16, {static_cast<int64_t>(count), columns}}};
  for (uint64_t i = 0; i < count; ++i) {
    plan.sources.push_back(
        {{"layers." + std::to_string(i) + ".weight", DType::kBF16, {columns}}, {}});
    Piece piece;
    piece.source = static_cast<uint32_t>(i);
    piece.source_view = {0, {{columns, 1}}};
    piece.target_view = {static_cast<int64_t>(i) * columns, {{columns, 1}}};
    plan.pieces.push_back(std::move(piece));
  }
  return plan;
}

}  // namespace

Result<const Model*> Models::dense() {
  return keep("dense", plan_of(small_ ? kDenseSmall : kDense));
}

Result<const Model*> Models::experts() {
  return keep("experts", plan_of(small_ ? kExpertsSmall : kExperts));
}

Result<const Model*> Models::even(uint64_t count, uint64_t tensor_bytes) {
  return keep(std::to_string(count) + "x" + std::to_string(tensor_bytes),
              even_plan(count, tensor_bytes));
}

Result<const Model*> Models::keep(const std::string& key, Result<LoadPlan> plan) {
  if (const auto at = models_.find(key); at != models_.end()) {
    return &at->second;
  }
  CHANGEOVER_TRY(plan.status());
  Model model;
  model.plan = std::move(plan).take();
  std::vector<uint64_t> offsets;
  for (const Source& source : model.plan.sources) {
    CHANGEOVER_TRY_ASSIGN(const int64_t bytes, byte_count(source.spec.dtype, source.spec.shape));
    offsets.push_back(model.bytes);
    model.bytes += static_cast<uint64_t>(bytes);
    model.tensor_bytes_max = std::max(model.tensor_bytes_max, static_cast<uint64_t>(bytes));
  }
  CHANGEOVER_TRY_ASSIGN(const std::byte* const memory, bytes(model.bytes));
  for (size_t i = 0; i < offsets.size(); ++i) {
    const TensorSpec& spec = model.plan.sources[i].spec;
    model.tensors.push_back({spec.name, {spec.dtype, spec.shape, {}, memory + offsets[i]}});
  }
  return &(models_[key] = std::move(model));
}

Result<const std::byte*> Models::bytes(uint64_t count) {
  if (memory_.empty() || memory_.back().size() < count) {
    std::vector<std::byte> fresh(count);
    uint64_t state = 1;
    for (size_t at = 0; at + 8 <= count; at += 8) {
      state = state * 6364136223846793005 + 1442695040888963407;
      std::memcpy(fresh.data() + at, &state, 8);
    }
    memory_.push_back(std::move(fresh));
  }
  return memory_.back().data();
}

}  // namespace changeover::bench
