// A Llama small enough for a test: 6 query heads, 3 KV heads, two layers; TP 1 or 3.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <changeover/checkpoint.h>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace changeover::reference {

inline constexpr const char* kToyConfig =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 24,
        "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 4, "vocab_size": 96, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "hidden_act": "silu"})";

inline std::vector<TensorSpec> toy_specs() {
  std::vector<TensorSpec> specs = {{"model.embed_tokens.weight", DType::kBF16, {96, 24}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    specs.push_back({layer + "self_attn.q_proj.weight", DType::kBF16, {24, 24}});
    specs.push_back({layer + "self_attn.k_proj.weight", DType::kBF16, {12, 24}});
    specs.push_back({layer + "self_attn.v_proj.weight", DType::kBF16, {12, 24}});
    specs.push_back({layer + "self_attn.o_proj.weight", DType::kBF16, {24, 24}});
    specs.push_back({layer + "mlp.gate_proj.weight", DType::kBF16, {36, 24}});
    specs.push_back({layer + "mlp.up_proj.weight", DType::kBF16, {36, 24}});
    specs.push_back({layer + "mlp.down_proj.weight", DType::kBF16, {24, 36}});
    specs.push_back({layer + "input_layernorm.weight", DType::kBF16, {24}});
    specs.push_back({layer + "post_attention_layernorm.weight", DType::kBF16, {24}});
  }
  specs.push_back({"model.norm.weight", DType::kBF16, {24}});
  return specs;
}

// config.json and model.safetensors with bytes that follow from the seed. `changed` gets one other
// byte.
inline void write_toy(const std::filesystem::path& folder, uint64_t seed,
                      const std::string& changed = "") {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kToyConfig;
  base::Prng random(seed);
  std::vector<std::vector<std::byte>> memory;
  std::vector<NamedTensor> tensors;
  for (const TensorSpec& spec : toy_specs()) {
    auto& bytes = memory.emplace_back(*byte_count(spec.dtype, spec.shape));
    random.fill(bytes);
    if (spec.name == changed) {
      bytes[bytes.size() / 2] ^= std::byte{1};
    }
    tensors.push_back({spec.name, {spec.dtype, spec.shape, {}, bytes.data()}});
  }
  const Status written = write_safetensors(folder / "model.safetensors", tensors, {});
  ASSERT_TRUE(written.ok()) << written.to_string();
}

class ToyTest : public testing::Test {
 protected:
  ToyTest() {
    std::string pattern = testing::TempDir() + "changeover-toy-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ToyTest() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

}  // namespace changeover::reference
