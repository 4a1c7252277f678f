"""publish and receive: whole updates between real processes, and what is refused."""
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import unittest
import uuid

from command import BINARY, CommandTest, llama_config, llama_tensors, moe_config, safetensors


class Stream(CommandTest):
    def setUp(self):
        super().setUp()
        self.model()
        self.endpoint = f"shm:test-{uuid.uuid4().hex[:12]}"

    def rank(self, rank, tp=2, *more, engine="a", model="model", env=None):
        return self.start("receive", "--json", "--model", model, "--from", self.endpoint,
                          "--engine", engine, "--tp", tp, "--rank", rank, "--step-interval-ms", 1,
                          "--admin", f"unix:{self.folder}/{engine}{rank}", *more, env=env)

    def publish(self, version, *more, ranks=2, model="model"):
        return ("publish", "--model", model, "--to", self.endpoint, "--version", version,
                "--ranks", ranks, *more)

    def verify(self, name, model="model"):
        return ("verify", "--rank", f"unix:{self.folder}/{name}", "--model", model)

    def test_three_versions_to_two_ranks_and_verified(self):
        ranks = [self.rank(0), self.rank(1)]
        for version in (1, 2, 3):
            content = bytearray(safetensors(llama_tensors()))
            content[-100] ^= version
            self.write("model/model.safetensors", bytes(content))
            done = self.assert_ok(*self.publish(version, "--json", "--bucket-bytes", 100))
            self.assertEqual([r["outcome"] for r in done.json["ranks"]], ["committed"] * 2)
            for running in ranks:
                running.wait_for(lambda s: s["version"] == version and s["gate_open"])
            for name in ("a0", "a1"):
                self.assert_ok(*self.verify(name))
        for running in ranks:
            self.assertEqual(running.stop()[0], 0, running.error_text())
        self.assertEqual(sorted(os.listdir(self.folder)), ["model"])

    def test_s3_a_rank_whose_output_is_closed_keeps_its_weights_to_itself(self):
        self.model("m")
        pipes = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-')
        rank = subprocess.Popen(
            [*pipes, BINARY, "receive", "--model", "m", "--from", self.endpoint, "--engine", "a",
             "--admin", f"unix:{self.folder}/a0"], cwd=self.folder)
        self.addCleanup(rank.wait)
        self.addCleanup(rank.kill)
        self.assert_ok(*self.publish(1, ranks=1, model="m"))
        for number in range(3):  # What is printed there must not be its memory.
            self.assertEqual(os.readlink(f"/proc/{rank.pid}/fd/{number}"), "/dev/null")
        self.assert_ok(*self.verify("a0", "m"))

    def test_over_tcp_with_a_token(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp:127.0.0.1:{probe.getsockname()[1]}"
        self.write("token", "open sesame\n").chmod(0o600)
        self.rank(0, 1, "--token-file", "token")
        self.assert_ok(*self.publish(1, "--token-file", "token", ranks=1))
        self.assert_ok(*self.verify("a0"))

    def test_two_engines(self):
        for engine in "ab":
            for rank in (0, 1):
                self.rank(rank, engine=engine)
        done = self.assert_ok(*self.publish(1, "--json", ranks=4))
        self.assertEqual([(r["engine"], r["rank"]) for r in done.json["ranks"]],
                         [("a", 0), ("a", 1), ("b", 0), ("b", 1)])

    # Two copies of attention over two ranks each; experts in two groups of two ranks, in turns.
    def test_case_b15_experts_over_groups_of_ranks(self):
        self.write("moe/config.json", moe_config())
        plan = self.assert_ok("plan", "--model", "moe", "--json").json
        tensors = {s["name"]: ("BF16", s["shape"]) for s in plan["sources"]}
        shape = ("--dp", 2, "--ep", 2, "--expert-placement", "round_robin",
                 "--redundant-experts", 2)
        ranks = [self.rank(rank, 2, *shape, model="moe") for rank in range(4)]
        for version in (1, 2, 3):
            content = bytearray(safetensors(tensors))
            start = 8 + int.from_bytes(content[:8], "little")
            content[start:] = random.Random(version).randbytes(len(content) - start)
            self.write("moe/model.safetensors", bytes(content))
            done = self.assert_ok(*self.publish(version, "--json", "--bucket-bytes", 100,
                                                ranks=4, model="moe"))
            self.assertEqual([r["outcome"] for r in done.json["ranks"]], ["committed"] * 4)
            for running in ranks:
                running.wait_for(lambda s: s["version"] == version and s["gate_open"])
            for rank in range(4):
                same = self.assert_ok(*self.verify(f"a{rank}", model="moe"), "--json").json
                self.assertEqual(same["parameters_compared"], len(plan["parameters"]))

    def test_v4_each_engine_decides_for_itself(self):
        self.model("other", config=llama_config(intermediate_size=16))
        self.rank(0, 1)
        self.rank(0, 1, engine="b", model="other")  # Cannot take these weights.
        done = self.run_command(*self.publish(1, "--json"))
        self.assertEqual(done.code, 1, done.err)
        outcomes = {r["engine"]: r["outcome"] for r in done.json["ranks"]}
        self.assertEqual(outcomes["a"], "committed")
        self.assertNotEqual(outcomes["b"], "committed")
        self.assert_ok(*self.verify("a0"))

    def test_case_b38_stale_and_same_versions(self):
        self.rank(0, 1)
        self.assert_ok(*self.publish(37, ranks=1))
        for version in (0, 36):
            done = self.assert_fails(1, arguments=self.publish(version, ranks=1))
            self.assertRegex(done.out, r"a/0 .* 0 B .* refused\n")
            self.assertIn(f"version {version}: nothing was sent", done.out)
        self.assert_ok(*self.publish(37, ranks=1))
        other = bytearray(safetensors(llama_tensors()))
        other[-1] ^= 1
        self.write("other/model.safetensors", bytes(other))
        self.assert_fails(1, arguments=self.publish(37, ranks=1, model="other"))
        self.assert_ok(*self.verify("a0"))
        self.assert_ok(*self.publish(38, ranks=1, model="other"))

    def test_checkpoint_that_lacks_a_tensor_is_refused_by_name(self):
        running = self.rank(0, 1)
        self.assert_ok(*self.publish(1, ranks=1))
        tensors = llama_tensors()
        del tensors["model.layers.1.self_attn.v_proj.weight"]
        self.write("poor/model.safetensors", safetensors(tensors))
        done = self.run_command(*self.publish(2, ranks=1, model="poor"))
        self.assertEqual(done.code, 1, done.out + done.err)
        self.assertIn("v", done.err)
        self.assertIn("qkv_proj", done.out + done.err)
        running.wait_for(lambda s: s["updates_aborted"] == 1)
        self.assert_ok(*self.verify("a0"))

    def test_tensor_that_nobody_wants_is_refused_by_name(self):
        self.rank(0, 1)
        tensors = {**llama_tensors(), "model.extra.weight": ("BF16", [2])}
        self.write("rich/model.safetensors", safetensors(tensors))
        done = self.run_command(*self.publish(1, ranks=1, model="rich"))
        self.assertEqual(done.code, 1, done.out + done.err)
        self.assertIn("model.extra.weight", done.out + done.err)

    def test_nobody_dials_in(self):
        self.assert_fails(5, arguments=self.publish(1, "--wait", "0.05"))

    def test_wrong_and_missing_token(self):
        self.write("token", "open sesame\n").chmod(0o600)
        wrong = self.rank(0, 1, env={"CHANGEOVER_TOKEN": "wrong"})
        missing = self.rank(1, 2, engine="b")
        for running in (wrong, missing):  # They dial before there is a publisher, and go on.
            running.wait_for(lambda s: not s["connected"])
        publisher = self.start(*self.publish(1, "--token-file", "token", "--wait", "30", ranks=1))
        wrong.wait_for(lambda s: "wrong token" in s["last_error"])
        missing.wait_for(lambda s: "the rank has none" in s["last_error"])
        publisher.stop(signal.SIGINT)
        self.assert_fails(5, "last refused", "token", arguments=self.publish(
            1, "--token-file", "token", "--wait", "3", ranks=1))

    def test_publisher_says_at_once_who_came_and_who_was_refused(self):
        publisher = self.start(*self.publish(1, "--wait", "60"))
        self.rank(1)
        self.wait_for_error(publisher, "rank a/1 is here; missing: a/0\n")
        self.rank(0, 4)
        self.wait_for_error(publisher, "says its engine has 4 ranks, rank 1 says 2")
        self.assertIsNone(publisher.process.poll(), "and it goes on waiting")

    def wait_for_error(self, running, text):
        while text not in running.error_text():
            with self.assertRaises(subprocess.TimeoutExpired, msg=running.error_text()):
                running.process.wait(timeout=0.01)

    def test_rank_refused_for_anothers_mistake_comes_back_when_that_is_mended(self):
        publisher = self.start(*self.publish(1))
        mistaken = self.rank(1, 4)
        mistaken.wait_for(lambda s: s["connected"])
        self.rank(0, 2).wait_for(lambda s: "rank 1 says 4" in s["last_error"])
        mistaken.stop()
        self.rank(1, 2)
        self.assertEqual(publisher.finish()[0], 0, publisher.error_text())

    def test_rank_says_why_its_update_failed_not_that_the_publisher_left(self):
        running = self.rank(0, 1)
        tensors = {**llama_tensors(), "model.extra.weight": ("BF16", [2])}
        self.write("rich/model.safetensors", safetensors(tensors))
        self.assertEqual(self.run_command(*self.publish(1, ranks=1, model="rich")).code, 1)
        # The publisher has ended, and the rank dials in vain by the time it looks.
        told = running.wait_for(lambda s: s["updates_aborted"] == 1)
        self.assertIn("model.extra.weight", told["update_error"])

    def test_token_file_that_others_can_read(self):
        self.write("token", "open sesame\n").chmod(0o644)
        self.assert_fails(4, "token", "chmod 600",
                          arguments=self.publish(1, "--token-file", "token"))
        self.assert_fails(3, "none", arguments=self.publish(1, "--token-file", "none"))

    def test_no_token_beyond_loopback(self):
        self.endpoint = "tcp:0.0.0.0:0"
        self.assert_fails(4, "token", arguments=self.publish(1))

    def test_case_b57_address_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.endpoint = f"tcp:127.0.0.1:{port}"
            self.assert_fails(5, str(port), "in use", arguments=self.publish(1))

    def test_second_publisher(self):
        first = self.start(*self.publish(1))
        self.rank(0).wait_for(lambda s: s["connected"])
        self.assert_fails(5, "in use", arguments=self.publish(2))
        self.assertEqual(first.stop(signal.SIGINT)[0], 130)

    def test_second_process_that_would_be_the_same_rank(self):
        self.rank(0, 1).wait_for(lambda s: not s["connected"])
        for engine, admin in (("b", "a0"), ("a", "other")):  # The admin, the step socket.
            self.assert_fails(5, "in use", arguments=(
                "receive", "--model", "model", "--from", self.endpoint, "--engine", engine,
                "--admin", f"unix:{self.folder}/{admin}"))

    def test_interrupted_rank(self):
        running = self.rank(0, 1)
        running.wait_for(lambda s: not s["connected"])
        self.assertEqual(running.stop(signal.SIGINT)[0], 130)

    def test_rank_that_cannot_be(self):
        self.assert_fails(3, "3", "4", arguments=(
            "receive", "--model", "model", "--from", self.endpoint, "--engine", "a", "--tp", 3))
        self.assert_fails(2, "--mode", arguments=(
            "receive", "--model", "model", "--from", self.endpoint, "--engine", "a",
            "--mode", "teleport"))


class Recording(CommandTest):
    """receive --from file: one rank, which decides alone."""

    def setUp(self):
        super().setUp()
        self.model()
        self.assert_ok("publish", "--model", "model", "--version", 4, "--to", "file:v4.stream")

    def receive(self, *more):
        return ("receive", "--json", "--model", "model", "--from", "file:v4.stream", "--engine",
                "a", "--once", *more)

    def test_whole(self):
        done = self.assert_ok(*self.receive())
        self.assertEqual(json.loads(done.out.splitlines()[-1])["version"], 4)

    def test_cut_off_or_with_a_flipped_header(self):
        whole = (self.folder / "v4.stream").read_bytes()
        for content in (whole[:-1], whole[:100], b"", whole[:8] + b"\xff" + whole[9:]):
            self.write("v4.stream", content)
            self.assert_fails(3, "v4.stream", arguments=self.receive())

    def test_needs_tp_1(self):
        self.assert_fails(3, arguments=self.receive("--tp", "2"))

    def test_not_there(self):
        pathlib.Path(self.folder / "v4.stream").unlink()
        self.assert_fails(3, "v4.stream", arguments=self.receive())


if __name__ == "__main__":
    unittest.main()
