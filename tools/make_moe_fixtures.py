#!/usr/bin/env python3
"""Writes tests/fixtures/moe/*.json: mixtures of experts as `transformers` and an engine hold them.

usage: make_moe_fixtures.py OUTPUT_DIR      (needs torch, transformers, numpy, xxhash; not run by
                                             the build)

Each file is one tiny model: its config.json, the tensors of its checkpoint (one per expert), those
of its state_dict (all experts of a layer in one, as transformers 5 holds them) and, for several
engines, the XXH3-128 of what each of their ranks holds. Element i of the checkpoint's tensor k (in
the order of names) is the bf16 with bits ((k << 20 | i) * 2654435761 mod 2^32) >> 16.

The fused tensors come from transformers: it loads the checkpoint that was written here. The ranks'
experts are cut from the checkpoint with numpy, by the rules of vLLM's FusedMoE: w13 is [gate; up],
each cut by rows before they are joined, w2 is cut by columns, experts lie contiguously (the first
ranks hold the remainder) or in turns.
"""
import json
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers
import xxhash
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

BASE = {"vocab_size": 53, "hidden_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "max_position_embeddings": 64, "num_experts_per_tok": 2}
MODELS = {
    "qwen3_moe": BASE | dict(num_experts=8, moe_intermediate_size=12, intermediate_size=28,
                             head_dim=6, decoder_sparse_step=1, mlp_only_layers=[0]),
    "qwen2_moe": BASE | dict(num_experts=8, moe_intermediate_size=12, intermediate_size=28,
                             shared_expert_intermediate_size=16, decoder_sparse_step=2),
    "mixtral": BASE | dict(num_local_experts=8, intermediate_size=12, head_dim=6),
    "olmoe": BASE | dict(num_experts=8, intermediate_size=12),
}
# Of a checkpoint: where the experts of a layer stand, and what their three matrices are called.
NAMES = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2")}
USUAL = ("mlp", "gate_proj", "up_proj", "down_proj")
EXPERTS = 8


def table(slots):
    return {"format": 1, "slots": slots}


# (tp, dp, ep, placement, redundant): tp x dp ranks; each of ep groups holds other experts.
ENGINES = [
    (1, 1, 1, "contiguous", 0), (2, 1, 1, "contiguous", 0), (4, 1, 1, "contiguous", 0),
    (2, 1, 2, "contiguous", 0), (4, 1, 4, "contiguous", 0), (4, 1, 4, "round_robin", 0),
    (1, 3, 3, "contiguous", 0), (1, 3, 3, "round_robin", 0),
    (4, 1, 2, "contiguous", 0), (4, 1, 2, "round_robin", 0),
    (2, 2, 2, "round_robin", 0), (2, 2, 4, "contiguous", 0),
    (2, 1, 2, "contiguous", 3), (1, 2, 2, "round_robin", 4),
    (1, 2, 2, table([[0, 2, 1, 3, 1], [7, 5, 6, 4]]), 0),
    (2, 2, 2, table([[7, 6, 5, 4, 3], [0, 1, 2, 0, 0]]), 0),
]


def bits(k, shape):
    count = int(numpy.prod(shape))
    mixed = (numpy.uint64(k << 20) | numpy.arange(count, dtype=numpy.uint64)) * 2654435761
    return ((mixed & 0xffffffff) >> 16).astype(numpy.uint16).reshape(shape)


def digest(array):
    return xxhash.xxh3_128_hexdigest(numpy.ascontiguousarray(array).tobytes())


def as_bits(tensor):
    return tensor.contiguous().view(torch.uint16).numpy()


def held_slots(placement, redundant, ep, ep_rank):
    """The logical experts in the slots of one group."""
    if isinstance(placement, dict):
        return placement["slots"][ep_rank]
    physical = list(range(EXPERTS)) + [i % EXPERTS for i in range(redundant)]
    if placement == "round_robin":
        return physical[ep_rank::ep]
    base, remainder = divmod(len(physical), ep)
    start = ep_rank * base + min(ep_rank, remainder)
    return physical[start:start + base + (ep_rank < remainder)]


def part_of(array, axis, rank, size):
    return numpy.split(array, size, axis=axis)[rank]


def rank_parameters(model, weights, engine, rank):
    tp, dp, ep, placement, redundant = engine
    expert_tp = tp * dp // ep
    slots = held_slots(placement, redundant, ep, rank // expert_tp)
    cut = rank % expert_tp
    where, gate, up, down = NAMES.get(model, USUAL)
    result = {}
    for name in sorted(weights):
        if not name.endswith(f"{where}.gate.weight"):
            continue
        layer = name.removesuffix("gate.weight")
        result[name] = digest(weights[name])
        expert = [[weights[f"{layer}experts.{e}.{part}.weight"] for part in (gate, up, down)]
                  for e in slots]
        result[f"{layer}experts.w13_weight"] = digest(numpy.stack(
            [numpy.concatenate([part_of(g, 0, cut, expert_tp), part_of(u, 0, cut, expert_tp)])
             for g, u, _ in expert]))
        result[f"{layer}experts.w2_weight"] = digest(numpy.stack(
            [part_of(d, 1, cut, expert_tp) for _, _, d in expert]))
        if f"{layer}shared_expert.up_proj.weight" in weights:
            shared = [weights[f"{layer}shared_expert.{part}.weight"] for part in (gate, up, down)]
            result[f"{layer}shared_expert.gate_up_proj.weight"] = digest(numpy.concatenate(
                [part_of(half, 0, rank % tp, tp) for half in shared[:2]]))
            result[f"{layer}shared_expert.down_proj.weight"] = digest(
                part_of(shared[2], 1, rank % tp, tp))
            result[f"{layer}shared_expert_gate.weight"] = digest(
                weights[f"{layer}shared_expert_gate.weight"])
    return result


def fixture_of(model, settings):
    config = AutoConfig.for_model(model, **settings)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = pathlib.Path(folder)
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        saved = load_file(path / "model.safetensors")
        weights = {name: bits(k, tuple(saved[name].shape)) for k, name in enumerate(sorted(saved))}
        save_file({name: torch.from_numpy(array).view(torch.bfloat16)
                   for name, array in weights.items()},
                  path / "model.safetensors", {"format": "pt"})
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        state = {name: as_bits(tensor) for name, tensor in loaded.state_dict().items()}
        saved_config = json.loads((path / "config.json").read_text())
    engines = []
    for engine in ENGINES:
        tp, dp, ep, placement, redundant = engine
        ranks = [rank_parameters(model, weights, engine, rank) for rank in range(tp * dp)]
        engines.append({"tp": tp, "dp": dp, "ep": ep, "placement": placement,
                        "redundant": redundant, "ranks": ranks})
    return {"transformers": transformers.__version__, "config": saved_config,
            "checkpoint": [[name, list(array.shape)] for name, array in sorted(weights.items())],
            "state_dict": [[name, list(array.shape), digest(array)]
                           for name, array in sorted(state.items())],
            "engines": engines}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for model, settings in MODELS.items():
        fixture = fixture_of(model, settings)
        text = json.dumps(fixture, separators=(",", ":")).replace('{"tp"', '\n{"tp"')
        (out / f"{model}.json").write_text(text + "\n")
        print(model, len(fixture["checkpoint"]), len(fixture["state_dict"]))


if __name__ == "__main__":
    main()
