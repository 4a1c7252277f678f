"""changeover plan: what goes where, and why not."""
import json
import unittest

from command import CommandTest, llama_config, moe_config


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

    def moe(self, *arguments):
        return self.plan(moe_config(), *arguments)

    def test_experts_are_shown_by_slot(self):
        w13 = "layers.1.mlp.experts.w13_weight"
        shown = self.assert_ok(*self.moe("--tp", "4", "--ep", "2", "--rank", "3",
                                         "--expert-placement", "round_robin"))
        row = next(line for line in shown.out.splitlines() if w13 in line)
        self.assertIn("[4, 4, 8]", row)
        self.assertIn("gate=model.layers.1.mlp.experts.{1..7..2}.gate_proj.weight", row)
        self.assertIn("experts: those of group 1 of 2, each cut over 2 ranks, share 1", shown.out)
        self.assertIn("dropped: model.layers.{0,1}.mlp.experts.{0..6..2}.up_proj.weight",
                      shown.out)
        fused = self.assert_ok(*self.moe("--tp", "2", "--dp", "2", "--ep", "4", "--rank", "3",
                                         "--source-form", "fused"))
        row = next(line for line in fused.out.splitlines() if w13 in line)
        self.assertIn("gate=model.layers.1.mlp.experts.gate_up_proj[{6,7}]", row)

    def test_experts_by_a_table(self):
        self.write("table.json", {"format": 1, "slots": [[0, 2, 1, 3, 1], [4, 5, 6, 7]],
                                  "layers": {"1": [[7], [0, 1, 2, 3, 4, 5, 6, 7]]}})
        shown = self.assert_ok(*self.moe("--tp", "2", "--ep", "2", "--expert-placement",
                                         "table.json")).out
        self.assertIn("up=model.layers.0.mlp.experts.{0,2,1,3,1}.up_proj.weight", shown)
        self.assertIn("up=model.layers.1.mlp.experts.7.up_proj.weight", shown)
        self.write("table.json", {"format": 1, "slots": [[0, 2, 1, 3], [4, 5, 6, 6]]})
        self.assert_fails(3, "layer 0", "expert 7", arguments=self.moe(
            "--tp", "2", "--ep", "2", "--expert-placement", "table.json"))
        self.assert_fails(3, "--redundant-experts", arguments=self.moe(
            "--expert-placement", "table.json", "--redundant-experts", "1"))

    def test_experts_options_that_fit_nothing(self):
        self.assert_fails(2, "ep 3", "4 ranks", arguments=self.moe("--tp", "4", "--ep", "3"))
        self.assert_fails(2, "rank 4", arguments=self.moe("--tp", "2", "--dp", "2", "--rank", "4"))
        self.assert_fails(3, "nowhere", arguments=self.moe("--expert-placement", "nowhere"))
        self.assert_fails(3, "stacked", "per_expert, fused",
                          arguments=self.moe("--source-form", "stacked"))
        self.assert_fails(3, "x=y", arguments=self.moe("--dtype", "x=y"))

    def test_a_router_in_a_dtype_of_its_own(self):
        for how, sent in (("float32", "float32"), ("bfloat16:float32", "bfloat16")):
            plan = self.assert_ok(*self.moe("--dtype", "model.layers.*.mlp.gate.weight=" + how,
                                            "--json")).json
            name = "model.layers.1.mlp.gate.weight"
            held = {p["name"]: p["dtype"] for p in plan["parameters"]}
            sources = {s["name"]: s["dtype"] for s in plan["sources"]}
            self.assertEqual((held[name], sources[name]), ("float32", sent))


if __name__ == "__main__":
    unittest.main()
