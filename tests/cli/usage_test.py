"""The command line itself: help, version, mistakes."""
import os
import subprocess
import unittest

from command import BINARY, CommandTest

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

    def test_output_that_cannot_be_written_is_told_and_a_pager_that_leaves_is_not(self):
        def run(redirected, *arguments):
            return subprocess.run(["sh", "-c", f'"$0" "$@" {redirected}', BINARY, *arguments],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  cwd=self.folder)

        full = run(">/dev/full", "plan", "--list")
        self.assertEqual(full.returncode, 1)
        self.assertIn("could not be written", full.stderr)
        reader, writer = os.pipe()
        os.close(reader)
        left = subprocess.run([BINARY, "plan", "--list"], stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        self.assertEqual((left.returncode, left.stderr), (0, b""))
        for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
            self.assertEqual(run(closed, "plan", "--list").returncode, 0, closed)
            self.assertEqual(run(closed, "plan", "--model", "none").returncode, 3, closed)

    def test_s3_a_name_cannot_write_to_the_terminal(self):
        done = self.assert_fails(2, arguments=("publish", "--model", "x", "--version", "1", "--to",
                                               "\x1b[2J\u009b2J"))
        self.assertNotIn("\x1b", done.err)
        self.assertNotIn("\u009b", done.err)
        self.assertIn("\\x1b[2J\\u009b2J", done.err)

    def test_seconds_are_a_number(self):
        for wrong in ("nan", "inf", "-1", "1e7", "x"):
            self.assert_fails(2, "--wait", arguments=("publish", "--model", "x", "--version", "1",
                                                      "--to", "shm:x", "--wait", wrong))

    def test_s2_input_files_that_are_none(self):
        self.model("m")
        for arguments in (("plan", "--check"), ("plan", "--model", "m", "--expert-placement"),
                          ("publish", "--model", "m", "--version", "1", "--to", "file:o",
                           "--order")):
            self.assert_fails(3, "m", arguments=(*arguments, "m"))
            self.assert_fails(3, "longer than", arguments=(*arguments, "/dev/zero"))

    def test_no_publisher_listens_on_a_unix_path(self):
        self.assert_fails(2, "unix:/tmp/x",
                          arguments=("receive", "--model", "x", "--from", "unix:/tmp/x",
                                     "--engine", "a"))


if __name__ == "__main__":
    unittest.main()
