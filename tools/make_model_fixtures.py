#!/usr/bin/env python3
"""Writes tests/fixtures/models/*.json: what `transformers` itself calls the tensors of each model.

usage: make_model_fixtures.py OUTPUT_DIR      (needs torch and transformers; not run by the build)

Each file holds cases of one architecture: a config.json as `save_pretrained` writes it, and the
names and shapes in the saved checkpoint. Tests compare the sources of a load plan with them.
Dimensions differ pairwise, so that a mix-up of two cannot go unseen.
"""
import json
import pathlib
import struct
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

DENSE = {"vocab_size": 101, "hidden_size": 132, "intermediate_size": 84, "num_hidden_layers": 2,
         "num_attention_heads": 12, "head_dim": 10, "max_position_embeddings": 64}


def dense(**changes):
    return DENSE | changes


CASES = {
    "llama": [
        dense(num_key_value_heads=12, tie_word_embeddings=False),
        dense(num_key_value_heads=1, tie_word_embeddings=True),
        dense(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
        dense(num_key_value_heads=3, hidden_size=120, head_dim=None),
    ],
    "mistral": [
        dense(num_key_value_heads=2),
        dense(num_key_value_heads=3, tie_word_embeddings=True),
    ],
    "qwen2": [
        dense(num_key_value_heads=2, hidden_size=120, head_dim=None),
        dense(num_key_value_heads=1, hidden_size=120, head_dim=None, tie_word_embeddings=True),
    ],
    "qwen3": [
        dense(num_key_value_heads=2, hidden_size=23),
        dense(num_key_value_heads=1, hidden_size=23, tie_word_embeddings=True, attention_bias=True),
    ],
    "deepseek_v3": [
        dict(vocab_size=101, hidden_size=23, intermediate_size=84, moe_intermediate_size=36,
             num_hidden_layers=3, num_attention_heads=12, num_key_value_heads=12,
             n_shared_experts=2, n_routed_experts=8, n_group=2, topk_group=1,
             num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=q_lora, kv_lora_rank=19,
             qk_rope_head_dim=6, qk_nope_head_dim=14, v_head_dim=10)
        for q_lora in (17, None)
    ],
    "gpt_oss": [
        dict(vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             num_attention_heads=12, num_key_value_heads=2, head_dim=10, num_local_experts=5,
             num_experts_per_tok=2)
    ],
    "qwen3_next": [
        dict(vocab_size=101, hidden_size=23, intermediate_size=84, moe_intermediate_size=36,
             shared_expert_intermediate_size=48, num_hidden_layers=4, num_attention_heads=12,
             num_key_value_heads=2, head_dim=10, num_experts=5, num_experts_per_tok=2,
             decoder_sparse_step=1, mlp_only_layers=[1], linear_num_key_heads=4,
             linear_num_value_heads=8, linear_key_head_dim=6, linear_value_head_dim=7,
             linear_conv_kernel_dim=3)
    ],
}


def header_of(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return {k: v for k, v in json.loads(file.read(size)).items() if k != "__metadata__"}


def case_of(model_type, settings):
    settings = {k: v for k, v in settings.items() if v is not None or k == "q_lora_rank"}
    config = AutoConfig.for_model(model_type, **settings)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        saved = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            saved |= header_of(path)
        return {
            "config": json.loads((pathlib.Path(folder) / "config.json").read_text()),
            "tensors": [[name, entry["dtype"], entry["shape"]]
                        for name, entry in sorted(saved.items())],
        }


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for model_type, settings in CASES.items():
        cases = [case_of(model_type, entry) for entry in settings]
        document = {"transformers": transformers.__version__, "cases": cases}
        (out / f"{model_type}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
        print(model_type, [len(case["tensors"]) for case in cases])


if __name__ == "__main__":
    main()
