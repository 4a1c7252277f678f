"""The command line itself: help, version, mistakes."""
import unittest

from command import CommandTest

SUBCOMMANDS = ("publish", "receive", "inspect", "plan", "verify", "demo", "bench")


class Usage(CommandTest):
    def test_help_names_every_subcommand_and_the_exit_codes(self):
        done = self.assert_ok("--help")
        for name in SUBCOMMANDS:
            self.assertIn(name, done.out)
        self.assertIn("3 bad input", done.out)
        self.assertEqual(done.err, "")

    def test_every_subcommand_has_help_and_json(self):
        for name in SUBCOMMANDS:
            self.assertIn("--json", self.assert_ok(name, "--help").out, name)

    def test_version(self):
        self.assertRegex(self.assert_ok("--version").out, r"^changeover \d+\.\d+\.\d+\n$")

    def test_nothing_and_nonsense_are_usage_errors(self):
        for arguments in ((), ("no-such-thing",), ("inspect",), ("inspect", "a", "b"),
                          ("plan",), ("verify", "--model", "x"),
                          ("plan", "--model", "x", "--check", "y"),
                          ("plan", "--model", "x", "--tp", "0"),
                          ("publish", "--model", "x", "--to", "file:y")):
            self.assert_fails(2, arguments=arguments)

    def test_a_mistake_names_the_help_that_explains_it(self):
        self.assert_fails(2, "changeover plan --help", arguments=("plan", "--tp", "0"))
        self.assert_fails(2, "changeover --help", arguments=("no-such-thing",))

    def test_numbers_out_of_range(self):
        base = ("publish", "--model", "x", "--to", "file:y", "--version")
        for arguments in ((*base, "-1"), (*base, "1.5"), (*base, "x"),
                          (*base, "99999999999999999999"), (*base, "1", "--bucket-bytes", "0"),
                          (*base, "1", "--bucket-bytes", "-1"),
                          (*base, "1", "--bucket-bytes", "1 parsec")):
            self.assert_fails(2, arguments=arguments)

    def test_rank_that_the_engine_does_not_have(self):
        self.assert_fails(2, "rank 2 of 2 ranks", "0 to 1",
                          arguments=("plan", "--model", "x", "--tp", "2", "--rank", "2"))

    def test_endpoints_that_are_none(self):
        for endpoint in ("nonsense", "tcp:host", "tcp:host:99999", "shm:", "unix:/tmp/x"):
            self.assert_fails(2, "--to", arguments=("publish", "--model", "x", "--version", "1",
                                                    "--to", endpoint))


if __name__ == "__main__":
    unittest.main()
