"""changeover publish --to file:, and what can be wrong with a checkpoint."""
import json
import os
import resource
import subprocess
import unittest

from command import BINARY, CommandTest, end, frame, safetensors, with_header

TENSORS = {"b": ("BF16", [2, 3]), "a": ("F32", [5]), "s": ("F32", []), "c": ("U8", [7])}


class PublishFile(CommandTest):
    def publish(self, *arguments, to="out.stream"):
        return ("publish", "--model", "m.safetensors", "--version", "3", "--to", f"file:{to}",
                *arguments)

    def names(self, stream="out.stream"):
        done = self.assert_ok("inspect", "--json", f"file:{stream}")
        return [[t["name"] for t in f["tensors"]] for f in done.json["frames"]]

    def setUp(self):
        super().setUp()
        self.write("m.safetensors", safetensors(TENSORS))

    def test_w4_buckets_in_data_order(self):
        self.assert_ok(*self.publish("--bucket-bytes", "20"))
        self.assertEqual(self.names(), [["b"], ["a"], ["s", "c"]])
        self.assert_ok(*self.publish("--bucket-bytes", "1"))
        self.assertEqual(self.names(), [["b"], ["a"], ["s"], ["c"]])
        self.assert_ok(*self.publish())
        self.assertEqual(self.names(), [["b", "a", "s", "c"]])

    def test_what_is_no_file_is_not_replaced_by_one(self):
        os.mkfifo(self.folder / "pipe")
        os.symlink("m.safetensors", self.folder / "link")
        for name, what in (("pipe", "pipe"), ("link", "symbolic link"), (".", "folder")):
            self.assert_fails(3, what, arguments=self.publish(to=name))
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertEqual((self.folder / "m.safetensors").read_bytes(), safetensors(TENSORS))

    def test_w3_payload_is_the_tensors_bytes_back_to_back(self):
        tensors = {"odd": ("U8", [3]), "w": ("BF16", [2, 3])}
        self.write("m.safetensors", safetensors(tensors))
        self.assert_ok(*self.publish())
        entries = [{"name": "odd", "shape": [3], "dtype": "uint8", "offset": 0, "nbytes": 3},
                   {"name": "w", "shape": [2, 3], "dtype": "bfloat16", "offset": 3, "nbytes": 12}]
        self.assertEqual((self.folder / "out.stream").read_bytes(),
                         frame(entries, safetensors(tensors)[-15:], 3) + end(3))

    def test_order(self):
        self.write("order.json", ["c", "a", "s", "b"])
        self.assert_ok(*self.publish("--order", "order.json"))
        self.assertEqual(self.names(), [["c", "a", "s", "b"]])

    def test_order_that_is_no_permutation(self):
        for order in (["a"], ["a", "b", "c", "s", "s"], ["a", "b", "c", "x"], {"a": 1}, [1], "a"):
            self.write("order.json", json.dumps(order))
            self.assert_fails(3, "order.json", arguments=self.publish("--order", "order.json"))
        self.assert_fails(3, "none.json", arguments=self.publish("--order", "none.json"))

    def test_shards_go_by_file_name(self):
        self.write("d/z.safetensors", safetensors({"first": ("U8", [1])}))
        self.write("d/a.safetensors", safetensors({"second": ("U8", [1])}))
        self.write("d/model.safetensors.index.json", {
            "metadata": {}, "weight_map": {"first": "z.safetensors", "second": "a.safetensors"}})
        self.assert_ok("publish", "--model", "d", "--version", "1", "--to", "file:out.stream")
        self.assertEqual(self.names(), [["second", "first"]])

    def test_replay_of_a_recording_is_the_recording(self):
        self.assert_ok(*self.publish("--bucket-bytes", "20"))
        self.assert_ok("publish", "--model", "file:out.stream", "--version", "3",
                       "--bucket-bytes", "20", "--to", "file:again.stream")
        self.assertEqual((self.folder / "out.stream").read_bytes(),
                         (self.folder / "again.stream").read_bytes())

    def test_json_is_a_report(self):
        done = self.assert_ok(*self.publish("--json"))
        self.assertEqual(done.json["format"], 1)

    def test_dtype_without_a_name_on_the_wire(self):
        header = json.dumps({"w": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}).encode()
        self.write("m.safetensors", with_header(header, bytes(2)))
        self.assert_fails(3, "w", "F4", arguments=self.publish())
        self.assertFalse((self.folder / "out.stream").exists())

    def test_broken_checkpoint_leaves_the_old_recording(self):
        self.write("out.stream", b"old")
        self.write("m.safetensors", safetensors(TENSORS)[:-1])
        self.assert_fails(3, "m.safetensors", arguments=self.publish())
        self.assertEqual((self.folder / "out.stream").read_bytes(), b"old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["m.safetensors", "out.stream"])

    def test_folder_that_is_not_there(self):
        self.assert_fails(3, "nowhere", arguments=self.publish(to="nowhere/out.stream"))

    def test_no_room_for_the_recording(self):
        """A file size limit stands for a full disk: an error with numbers, and nothing left."""
        self.write("m.safetensors", safetensors({"w": ("U8", [1 << 20])}))
        done = subprocess.run(
            [BINARY, *self.publish()], capture_output=True, text=True, cwd=self.folder, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out.stream", done.stderr)
        self.assertIn("65536", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["m.safetensors"])


if __name__ == "__main__":
    unittest.main()
