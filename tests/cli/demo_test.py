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
                                env={"TMPDIR": str(scratch), "CHANGEOVER_TOKEN": "of others"})
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

    def check_second_half(self, mode):
        result = self.demo("--mode", mode)
        self.check(result, ["restored"])
        for rank in result["updates"][-1]["ranks"]:
            self.assertEqual(rank["mode"], mode)
            self.assertGreaterEqual(rank["mode_memory_bytes"], rank["bytes_written"])
        self.assertIn("never left version 2", result["summary"])

    def test_staged_never_leaves_the_old_version(self):
        self.check_second_half("staged")

    def test_swap_never_leaves_the_old_version(self):
        self.check_second_half("swap")

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
    def bench(self, *arguments):
        return self.assert_ok("bench", "--small", "--rounds", "2", *arguments)

    def test_every_figure_has_its_form(self):
        done = self.bench("--json").json
        self.assertEqual(list(done), ["format", "machine", "results"])
        self.assertEqual(done["format"], 1)
        self.assertGreaterEqual(done["machine"]["cores"], 1)
        by_name = {result["figure"]: result for result in done["results"]}
        self.assertEqual(len(by_name), len(done["results"]))
        for name, limited in (("shm_1to1_dense", True), ("shm_1to1_dense_digest", True),
                              ("tcp_1to1_dense", True), ("shm_1to4_dense", True),
                              ("per_tensor", False), ("moe_1to1", True),
                              ("peak_extra_rank", True), ("vote_6_ranks", True),
                              ("pause_staged", True), ("flip_swap", False),
                              ("metadata_decode", False)):
            result = by_name[name]
            self.assertEqual(list(result), ["figure", "value", "unit", "better", "limit", "ratio",
                                            "repeats"])
            self.assertGreater(result["value"], 0, name)
            self.assertIn(result["better"], ("higher", "lower"))
            self.assertGreaterEqual(result["repeats"], 1)
            if limited:
                self.assertAlmostEqual(result["ratio"] * result["limit"], result["value"],
                                       delta=result["value"] * 1e-6)
            else:
                self.assertIsNone(result["limit"])
                self.assertIsNone(result["ratio"])
        self.assertEqual(by_name["shm_1to1_dense_first"]["repeats"], 1)

    def test_one_figure_with_its_first_update(self):
        done = self.bench("--json", "--figure", "per_tensor")
        self.assertEqual([r["figure"] for r in done.json["results"]],
                         ["per_tensor", "per_tensor_first"])

    def test_table_says_what_is_missed(self):
        out = self.bench("--figure", "metadata_decode").out
        self.assertIn(">= 300 MB/s", out)

    def test_page_fetches_nothing(self):
        with tempfile.TemporaryDirectory() as scratch:
            page = pathlib.Path(scratch, "bench.html")
            self.bench("--figure", "per_tensor", "--html", str(page))
            text = page.read_text()
        self.assertEqual(text.count("<svg"), 2)
        self.assertEqual(text.count("<polyline"), 4)
        for outside in ("http:", "https:", "src=", "@import", "url("):
            self.assertNotIn(outside, text)

    def test_unknown_figure(self):
        self.assert_fails(3, "teleport", arguments=("bench", "--small", "--figure", "teleport"))


if __name__ == "__main__":
    unittest.main()
