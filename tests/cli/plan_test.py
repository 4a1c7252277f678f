"""changeover plan: what goes where, and why not."""
import json
import unittest

from command import CommandTest, llama_config


class Plan(CommandTest):
    def plan(self, config, *arguments):
        self.write("m/config.json", config)
        return ("plan", "--model", "m", *arguments)

    def test_text_for_people(self):
        done = self.assert_ok(*self.plan(llama_config(), "--tp", "2", "--rank", "1"))
        self.assertIn("LlamaForCausalLM, rank 1 of 2", done.out)
        self.assertIn("q_proj", done.out)
        self.assertIn("proved", done.out)

    def test_json_is_a_plan_that_check_takes(self):
        done = self.assert_ok(*self.plan(llama_config(), "--tp", "2", "--json"))
        self.assertEqual(done.json["format"], 1)
        self.write("plan.json", done.out)
        checked = self.assert_ok("plan", "--check", "plan.json", "--json")
        self.assertEqual(checked.json, done.json)

    def test_check_refuses_what_is_no_plan(self):
        good = self.assert_ok(*self.plan(llama_config(), "--json")).json
        for content in (b"", b"{}", b"[]", b'{"format":2}',
                        json.dumps({**good, "extra": 1}).encode(),
                        json.dumps({**good, "pieces": good["pieces"][1:]}).encode()):
            self.write("plan.json", content)
            self.assert_fails(3, "plan.json", arguments=("plan", "--check", "plan.json"))
        self.assert_fails(3, "none.json", arguments=("plan", "--check", "none.json"))

    def test_list(self):
        self.assertIn("LlamaForCausalLM", self.assert_ok("plan", "--list").out)
        listed = self.assert_ok("plan", "--list", "--json").json
        self.assertIn({"architecture": "LlamaForCausalLM", "parse_only": False},
                      listed["architectures"])

    def test_config_without_a_needed_key(self):
        for key in ("hidden_size", "num_attention_heads", "vocab_size", "architectures"):
            self.assert_fails(3, key, arguments=self.plan(llama_config(**{key: None})))

    def test_unknown_architecture(self):
        self.assert_fails(3, "NoSuchModel",
                          arguments=self.plan(llama_config(architectures=["NoSuchModel"])))

    def test_heads_not_divisible_by_tp(self):
        self.assert_fails(3, "3", "4", arguments=self.plan(llama_config(), "--tp", "3"))

    def test_config_that_is_no_json_or_not_there(self):
        self.assert_fails(3, "config.json", arguments=self.plan("{"))
        self.assert_fails(3, "none", arguments=("plan", "--model", "none"))


if __name__ == "__main__":
    unittest.main()
