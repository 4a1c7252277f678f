"""changeover demo and bench, on models small enough for a test."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from command import CommandTest


class Demo(CommandTest):
    def demo(self, *more):
        self.model()
        scratch = self.folder / "tmp"
        scratch.mkdir()
        done = self.run_command("demo", "--model", "model", "--tp", "2", "--json", *more,
                                env={"TMPDIR": str(scratch)})
        self.assertEqual(done.code, 0, done.out + done.err)
        self.assertEqual(os.listdir(scratch), [])
        return done.json

    def check(self, result, survivors):
        self.assertTrue(result["ok"])
        outcomes = [{(r["engine"], r["rank"]): r["outcome"] for r in update["ranks"]}
                    for update in result["updates"]]
        for index in (0, 1, 3, 4):
            self.assertEqual(set(outcomes[index].values()), {"committed"})
        self.assertIn(outcomes[2].pop(("b", 0)), survivors)
        self.assertEqual(outcomes[2], {("a", 0): "committed", ("a", 1): "committed",
                                       ("b", 1): "lost"})
        self.assertEqual([r["version"] for r in result["ranks"]], [5] * 4)
        self.assertEqual([r["steps_mixed"] for r in result["ranks"]], [0] * 4)

    def test_over_shared_memory_with_the_old_bytes_restored(self):
        self.check(self.demo(), ["restored"])

    def test_over_tcp_in_place(self):
        self.check(self.demo("--road", "tcp", "--mode", "in_place"), ["fenced", "restored"])

    def test_ended_by_a_signal_it_leaves_nothing(self):
        self.model()
        for number in (signal.SIGTERM, signal.SIGINT):
            with tempfile.TemporaryDirectory() as scratch:
                running = self.start("demo", "--model", "model", "--tp", "2",
                                     env={"TMPDIR": scratch})
                while not list(pathlib.Path(scratch).glob("*/*.log")):  # until ranks are started
                    with self.assertRaises(subprocess.TimeoutExpired, msg=running.error_text()):
                        running.process.wait(timeout=0.01)
                self.assertEqual(running.stop(number)[0], 130, running.error_text())
                left = [name for name in os.listdir(scratch)
                        if not name.startswith("tsan.")]  # A sanitizer's own, of a killed process.
                self.assertEqual(left, [])

    def test_model_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as scratch:
            self.assert_fails(1, "none", arguments=("demo", "--model", "none"),
                              env={"TMPDIR": scratch})


class Bench(CommandTest):
    def test_every_figure_stands_beside_its_limit(self):
        done = self.assert_ok("bench", "--small", "--rounds", "2", "--json")
        self.assertEqual([f["name"] for f in done.json["figures"]],
                         ["shm_1to1_dense", "tcp_1to1_dense"])
        for figure in done.json["figures"]:
            self.assertEqual(len(figure["seconds"]), 2)
            self.assertGreater(figure["limit_bytes_per_second"], 0)
            self.assertGreater(figure["bytes_per_second"], 0)

    def test_unknown_name(self):
        self.assert_fails(3, "teleport", arguments=("bench", "--small", "teleport"))


if __name__ == "__main__":
    unittest.main()
