"""Drives the real `changeover` binary ($CHANGEOVER_BIN), and makes the files it is given."""
import dataclasses
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import unittest

BINARY = os.environ.get("CHANGEOVER_BIN", "build/bin/changeover")
TIMEOUT_SECONDS = 60
ITEM_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U8": 1, "BOOL": 1, "F8_E8M0": 1}


@dataclasses.dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def element_count(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def safetensors(tensors, metadata=None):
    """The file's bytes; tensors = {name: (dtype, shape)}, contents counted up from the name."""
    header, body = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for index, (name, (dtype, shape)) in enumerate(tensors.items()):
        size = element_count(shape) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + size]}
        # Finite in every floating type: the high byte of each element stays small.
        body += bytes((index * 7 + i) % 63 for i in range(size))
    return with_header(json.dumps(header).encode(), body)


def with_header(header, body=b""):
    return struct.pack("<Q", len(header)) + header + body


def frame(tensors, payload, version=1, command=1):
    """One frame of the plain wire; tensors = [{"name", "shape", "dtype", "offset", "nbytes"}]."""
    metadata = tensors if isinstance(tensors, bytes) else json.dumps(
        tensors, separators=(",", ":")).encode()
    return struct.pack("<4q", command, len(metadata), len(payload), version) + metadata + payload


def end(version=1):
    return struct.pack("<4q", 0, 0, 0, version)


def llama_config(**changes):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
        "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 2, "vocab_size": 10, "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not None}


def moe_config(**changes):
    return llama_config(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe",
                        tie_word_embeddings=False, num_experts=8, moe_intermediate_size=4,
                        **changes)


def llama_tensors():
    tensors = {"model.embed_tokens.weight": ("BF16", [10, 8]), "model.norm.weight": ("BF16", [8])}
    for layer in range(2):
        shapes = {"self_attn.q_proj": [8, 8], "self_attn.k_proj": [4, 8],
                  "self_attn.v_proj": [4, 8], "self_attn.o_proj": [8, 8],
                  "mlp.gate_proj": [12, 8], "mlp.up_proj": [12, 8], "mlp.down_proj": [8, 12],
                  "input_layernorm": [8], "post_attention_layernorm": [8]}
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = ("BF16", shape)
    return tensors


class Running:
    """A `changeover` process in the background; its standard output is read line by line."""

    def __init__(self, folder, *arguments, env=None):
        environment = {k: v for k, v in os.environ.items() if k != "CHANGEOVER_TOKEN"}
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, cwd=folder, env={**environment, **(env or {})})
        self.seen = []

    def wait_for(self, wanted):
        """The first JSON line that `wanted` accepts; the test's own time limit ends the wait."""
        for line in self.process.stdout:
            self.seen.append(line)
            parsed = json.loads(line)
            if wanted(parsed):
                return parsed
        raise AssertionError(f"ended before it said so: {self.seen} {self.error_text()}")

    def error_text(self):
        # Not by seek(): the process writes where this file's position is.
        return os.pread(self.errors.fileno(), 1 << 20, 0).decode()

    def finish(self):
        """Waits for the end: (exit code, the rest of standard output)."""
        out, _ = self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode, out

    def stop(self, signal_number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.finish()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.errors.close()


class CommandTest(unittest.TestCase):
    """A scratch folder, and the assertions that every subcommand's tests share."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def model(self, name="model", tensors=None, config=None):
        self.write(f"{name}/config.json", llama_config() if config is None else config)
        content = safetensors(llama_tensors() if tensors is None else tensors)
        return self.write(f"{name}/model.safetensors", content).parent

    def run_command(self, *arguments, env=None):
        environment = {k: v for k, v in os.environ.items() if k != "CHANGEOVER_TOKEN"}
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS,
                              env={**environment, **(env or {})}, cwd=self.folder)
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments, env=None):
        running = Running(self.folder, *arguments, env=env)
        self.addCleanup(running.close)
        return running

    def assert_ok(self, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual(done.code, 0, done.out + done.err)
        return done

    def assert_fails(self, code, *parts, arguments, env=None):
        """Exit code, one line on standard error that starts as all do, and every part in it."""
        done = self.run_command(*arguments, env=env)
        self.assertEqual(done.code, code, done.out + done.err)
        lines = [line for line in done.err.splitlines() if line.startswith("changeover: ")]
        self.assertEqual(len(lines), 1, done.err)
        for part in parts:
            self.assertIn(part, lines[0])
        return done
