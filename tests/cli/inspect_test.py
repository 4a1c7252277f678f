"""changeover inspect: checkpoints and recorded streams, whole and broken."""
import json
import struct
import unittest

from command import CommandTest, end, frame, safetensors, with_header

W = {"name": "w", "shape": [2, 3], "dtype": "bfloat16", "offset": 0, "nbytes": 12}


class Stream(CommandTest):
    def inspect(self, content):
        self.write("a.stream", content)
        return self.run_command("inspect", "--json", "file:a.stream")

    def test_form_of_a_whole_stream(self):
        second = {"name": "s", "shape": [], "dtype": "float32", "offset": 0, "nbytes": 4}
        content = frame([W], bytes(12), 7) + frame([second], bytes(4), 7) + end(7)
        metadata = [len(json.dumps([t], separators=(",", ":"))) for t in (W, second)]
        done = self.inspect(content)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.json, {
            "format": 1,
            "frames": [
                {"command": 1, "version": 7, "metadata_bytes": metadata[0], "payload_bytes": 12,
                 "tensors": [W]},
                {"command": 1, "version": 7, "metadata_bytes": metadata[1], "payload_bytes": 4,
                 "tensors": [second]}],
            "end": {"version": 7}, "ok": True, "error": None})
        self.assertEqual(list(done.json["frames"][0]["tensors"][0]),
                         ["name", "shape", "dtype", "offset", "nbytes"])

    def test_text_for_people(self):
        self.write("a.stream", frame([W], bytes(12), 7) + end(7))
        done = self.assert_ok("inspect", "file:a.stream")
        self.assertIn("1 frames, 1 tensors, 12 B of payload; END of version 7", done.out)

    def refused(self, content, *parts):
        done = self.inspect(content)
        self.assertEqual(done.code, 3, done.out + done.err)
        self.assertFalse(done.json["ok"])
        for part in parts:
            self.assertIn(part, done.json["error"])
            self.assertIn(part, done.err)
        self.assertTrue(done.err.startswith("changeover: a.stream: "), done.err)
        return done.json

    def test_w7_refusals_name_tensor_and_rule(self):
        def changed(**changes):
            return frame([{**W, **changes}], bytes(12)) + end()

        for content, part in (
                (changed(dtype="float31"), "float31"),
                (changed(nbytes=11), "w"),
                (changed(offset=1), "w"),
                (changed(shape=[-1, 6]), "w"),
                (changed(shape=[2.0, 3]), "w"),
                (changed(shape=[4294967296, 4294967296]), "w"),
                (changed(shape=[1] * 65), "64"),
                (changed(name=""), "name"),
                (changed(name="n" * 4097), "4096"),
                (frame([W, W], bytes(12)) + end(), "w"),
                (frame(b"[" + json.dumps(W).encode() + b",]", bytes(12)) + end(), ""),
                (frame(b'[{"name":"w","name":"w"}]', bytes(12)) + end(), "name"),
                (frame([W], bytes(13)) + end(), "13"),
                (struct.pack("<4q", 1, -1, 0, 1), "-1"),
                (struct.pack("<4q", 1, 0, -5, 1), "-5"),
                (struct.pack("<4q", 1, 1 << 40, 0, 1), str(1 << 40))):
            with self.subTest(part=part, content=content[:80]):
                self.refused(content, part)

    def test_w5_end_and_versions(self):
        good = frame([W], bytes(12))
        other = frame([{**W, "name": "v"}], bytes(12), 2)
        self.assertIsNone(self.refused(good)["end"])
        self.refused(good + other + end(), "2")
        self.refused(good + struct.pack("<4q", 0, 0, 8, 1) + bytes(8))
        self.refused(good + end() + b"x")

    def test_frames_before_the_fault_are_listed(self):
        json_form = self.refused(frame([W], bytes(12)) + frame([W], bytes(12))[:60])
        self.assertEqual(json_form["frames"][0]["tensors"], [W])

    def test_cut_off_at_every_byte(self):
        whole = frame([W], bytes(12)) + end()
        for size in range(0, len(whole), 7):
            self.refused(whole[:size])

    def test_no_such_file_and_a_folder(self):
        for what in ("file:none.stream", f"file:{self.folder}"):
            self.assert_fails(3, arguments=("inspect", "--json", what))


class Safetensors(CommandTest):
    def test_form(self):
        self.write("a.safetensors", safetensors({"w": ("BF16", [2, 3]), "e": ("F8_E8M0", [4])},
                                                {"format": "pt"}))
        done = self.assert_ok("inspect", "--json", "a.safetensors")
        self.assertEqual(done.json, {
            "format": 1,
            "tensors": [{"name": "w", "shape": [2, 3], "dtype": "bfloat16", "nbytes": 12},
                        {"name": "e", "shape": [4], "dtype": "float8_e8m0fnu", "nbytes": 4}],
            "metadata": {"format": "pt"}, "nbytes": 16, "ok": True, "error": None})

    def test_text_for_people(self):
        self.write("a.safetensors", safetensors({"w\x1b[31m": ("BF16", [2, 3])}))
        done = self.assert_ok("inspect", "a.safetensors")
        self.assertIn("[2, 3]", done.out)
        self.assertNotIn("\x1b", done.out)

    def refused(self, content, *parts):
        self.write("a.safetensors", content)
        done = self.assert_fails(3, "a.safetensors", *parts,
                                 arguments=("inspect", "--json", "a.safetensors"))
        self.assertEqual(done.json["ok"], False)

    def test_case_b47_broken_headers(self):
        whole = safetensors({"a": ("F32", [2]), "b": ("F32", [2])})
        self.refused(b"")
        self.refused(whole[:4])
        self.refused(whole[:20])
        self.refused(whole[:-1])
        self.refused(whole + b"x")
        self.refused(struct.pack("<Q", 1 << 63) + b"{}")
        self.refused(b"PK\x03\x04" + bytes(100))
        self.refused(with_header(b" " + b"{}"))
        one = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
        self.refused(with_header(b"{" + one + b"," + one + b"}", bytes(4)), "a")

    def test_case_b49_unknown_dtype(self):
        header = b'{"a":{"dtype":"FOO","shape":[1],"data_offsets":[0,4]}}'
        self.refused(with_header(header, bytes(4)), "FOO")

    def test_no_such_file_and_an_empty_folder(self):
        (self.folder / "empty").mkdir()
        for what in ("none.safetensors", "empty"):
            self.assert_fails(3, what, arguments=("inspect", what))

    def test_index_with_a_missing_shard(self):
        self.write("m/model.safetensors.index.json",
                   {"metadata": {}, "weight_map": {"w": "model-00001-of-00001.safetensors"}})
        self.assert_fails(3, "model-00001-of-00001.safetensors", arguments=("inspect", "m"))


if __name__ == "__main__":
    unittest.main()
