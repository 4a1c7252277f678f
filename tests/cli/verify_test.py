"""changeover verify of a folder: the same bytes, one byte off, and what cannot be compared."""
import unittest

from command import CommandTest, llama_config, llama_tensors, safetensors


class VerifyFolder(CommandTest):
    def verify(self, *arguments):
        return ("verify", "--folder", "held", "--model", "model", *arguments)

    def setUp(self):
        super().setUp()
        self.model("model")
        self.model("held")

    def test_same(self):
        done = self.assert_ok(*self.verify())
        self.assertIn("byte for byte", done.out)
        for rank in (0, 1):
            done = self.assert_ok(*self.verify("--tp", "2", "--tp-rank", rank, "--json"))
            self.assertEqual(done.json["differences"], [])

    def test_one_bit_off_is_named_on_the_rank_that_holds_it(self):
        content = bytearray(safetensors(llama_tensors()))
        content[-1] ^= 1  # In the last tensor of layer 1: its post-attention norm, on every rank.
        self.write("held/model.safetensors", bytes(content))
        done = self.run_command(*self.verify("--json"))
        self.assertEqual(done.code, 1, done.err)
        self.assertEqual([d["parameter"] for d in done.json["differences"]],
                         ["model.layers.1.post_attention_layernorm.weight"])

    def test_when_all_differ_the_answer_is_not_lost_below_a_long_table(self):
        content = bytearray(safetensors(llama_tensors()))
        start = 8 + int.from_bytes(content[:8], "little")
        content[start:] = bytes(byte ^ 1 for byte in content[start:])
        self.write("held/model.safetensors", bytes(content))
        done = self.run_command(*self.verify())
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("and 4 more (--json lists all)", done.out)
        self.assertIn("14 of 14 parameters", done.out.splitlines()[-1])
        self.assertEqual(len(self.run_command(*self.verify("--json")).json["differences"]), 14)

    def test_checkpoint_that_lacks_a_tensor(self):
        tensors = llama_tensors()
        del tensors["model.layers.1.self_attn.v_proj.weight"]
        self.write("held/model.safetensors", safetensors(tensors))
        self.assert_fails(3, "v_proj", arguments=self.verify())

    def test_checkpoint_with_one_that_nobody_wants(self):
        tensors = {**llama_tensors(), "model.layers.9.extra.weight": ("BF16", [2])}
        self.write("held/model.safetensors", safetensors(tensors))
        self.assert_fails(3, "model.layers.9.extra.weight", arguments=self.verify())

    def test_wrapped_names_say_what_to_do(self):
        tensors = {f"base_model.{name}": tensor for name, tensor in llama_tensors().items()}
        self.write("held/model.safetensors", safetensors(tensors))
        self.assert_fails(3, "--strip-prefix", arguments=self.verify())

    def test_undeclared_change_of_dtype(self):
        tensors = {**llama_tensors(), "model.norm.weight": ("F32", [8])}
        self.write("held/model.safetensors", safetensors(tensors))
        self.assert_fails(3, "model.norm.weight", "float32", "bfloat16", arguments=self.verify())

    def test_nothing_there(self):
        self.assert_fails(3, "none", arguments=("verify", "--folder", "none", "--model", "model"))
        self.write("model/config.json", llama_config(hidden_size=None))
        self.assert_fails(3, "hidden_size", arguments=self.verify())

    def test_rank_that_is_not_there(self):
        self.assert_fails(5, "none.sock", arguments=("verify", "--model", "model",
                                                     "--rank", f"unix:{self.folder}/none.sock"))


if __name__ == "__main__":
    unittest.main()
