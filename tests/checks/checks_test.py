"""Each check of tools/ passes this tree, and fails on a tree with a planted fault."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Planted(unittest.TestCase):
    """A small tree of its own, good until a test plants a fault in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        self.write("src/README.md", (ROOT / "src/README.md").read_text())
        self.write("src/wire/frame.cc", '#include "base/digest.h"\n\n#include <vector>\n')
        self.write("include/changeover/status.h", "#include <string>\n")
        self.write("cli/inspect.cc", '#include <changeover/status.h>\n\n#include "cli/table.h"\n')

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, name):
        done = subprocess.run([sys.executable, ROOT / "tools" / name, self.tree],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def assert_fault(self, name, expected):
        code, text = self.run_check(name)
        self.assertEqual(code, 1, text)
        self.assertIn(expected, text)


class Layers(Planted):
    CHECK = "check_layers.py"

    def test_good_tree_passes(self):
        code, text = self.run_check(self.CHECK)
        self.assertEqual(code, 0, text)

    def test_upward_include(self):
        self.write("src/wire/a.cc", '#include "runtime/publisher.h"\n')
        self.assert_fault(self.CHECK, "src/wire/a.cc:1: wire may not include runtime")

    def test_core_reaches_the_kernel(self):
        self.write("src/protocol/a.cc", "#include <thread>\n")
        self.assert_fault(self.CHECK, "protocol is sans-I/O and may not include <thread>")

    def test_update_may_have_atomics_and_no_mutex(self):
        self.write("src/update/a.cc", "#include <atomic>\n")
        self.assertEqual(self.run_check(self.CHECK)[0], 0)
        self.write("src/update/b.cc", "#include <mutex>\n")
        self.assert_fault(self.CHECK, "src/update/b.cc:1: update is sans-I/O")

    def test_folder_without_a_row(self):
        self.write("src/misc/a.cc", "")
        self.assert_fault(self.CHECK, "src/README.md: no row for misc")

    def test_include_without_its_folder(self):
        self.write("src/wire/a.cc", '#include "frame.h"\n')
        self.assert_fault(self.CHECK, '"frame.h" needs its folder, "wire/frame.h"')

    def test_command_reaches_into_src(self):
        self.write("cli/plan.cc", '#include "model/expression.h"\n')
        self.assert_fault(self.CHECK, "cli sees only <changeover/...>, not model/expression.h")

    def test_second_file_with_cli11(self):
        self.write("cli/plan.cc", "#include <CLI/CLI.hpp>\n")
        self.assert_fault(self.CHECK, "only cli/arguments.cc includes CLI11")

    def test_public_header_with_a_private_or_foreign_one(self):
        self.write("include/changeover/a.h", '#include "base/json.h"\n')
        self.assert_fault(self.CHECK, "a public header may not include base/json.h")
        self.write("include/changeover/a.h", "#include <nlohmann/json.hpp>\n")
        self.assert_fault(self.CHECK, "a public header may not include nlohmann/json.hpp")


class Limits(Planted):
    CHECK = "check_limits.py"

    def test_good_tree_passes(self):
        self.write("src/wire/a.cc", "void f() {\n" + "  g();\n" * 68 + "}\n")
        code, text = self.run_check(self.CHECK)
        self.assertEqual(code, 0, text)

    def test_long_file(self):
        self.write("src/wire/a.cc", "int a;\n" * 501)
        self.assert_fault(self.CHECK, "501 lines, at most 500")

    def test_long_function(self):
        self.write("src/wire/a.cc", "void f(int a,\n       int b) {\n" + "  g();\n" * 68 + "}\n")
        self.assert_fault(self.CHECK, "src/wire/a.cc:1: a function of 71 lines")

    def test_long_method_in_a_class(self):
        body = "  void f() {\n" + "    g();\n" * 69 + "  }\n"
        self.write("src/wire/a.h", "class A {\n public:\n" + body + "};\n")
        self.assert_fault(self.CHECK, "src/wire/a.h:3: a function of 71 lines")

    def test_many_short_functions_in_a_namespace(self):
        body = "void f() {\n  g();\n}\n\n" * 60
        self.write("src/wire/a.cc", "namespace a {\n\n" + body + "}  // namespace a\n")
        self.assertEqual(self.run_check(self.CHECK)[0], 0)

    def test_wide_line(self):
        self.write("src/wire/a.cc", "// " + "a" * 98 + "\n")
        self.assert_fault(self.CHECK, "src/wire/a.cc:1: 101 columns, at most 100")

    def test_sleep_in_a_test(self):
        self.write("src/wire/a_test.cc", "std::this_thread::" + "sleep_" + "for(1s);\n")
        self.assert_fault(self.CHECK, "a sleep in a test")

    def test_path_of_one_machine(self):
        self.write("docs/a.md", "see /" + "root/notes\n")
        self.assert_fault(self.CHECK, "a path of one machine")

    def test_left_over_mark(self):
        self.write("src/wire/a.cc", "// TO" + "DO: more\n")
        self.assert_fault(self.CHECK, "a left-over mark")


class Format(Planted):
    CHECK = "check_format.py"

    def test_badly_formatted_file(self):
        self.write(".clang-format", (ROOT / ".clang-format").read_text())
        self.write("src/wire/a.cc", "int   a ;\n")
        self.assert_fault(self.CHECK, "src/wire/a.cc: not formatted")


class Rules(Planted):
    CHECK = "check_rules.py"

    def setUp(self):
        super().setUp()
        self.write("docs/protocol.md", "# Rules\n\n- W1 A frame.\n- T7 The fence.\n"
                   "\n## Not yet\n\n| rule | missing |\n|---|---|\n| T7, T15 | moves |\n")
        block = re.search(r"CASES = \((.*?)\)", (ROOT / "tools/check_rules.py").read_text(),
                          re.DOTALL)[1]
        self.cases = re.findall(r"[BN]\d+", block)
        tests = "".join(f"TEST(A, Case{case}_Text) {{\n}}\n" for case in self.cases)
        self.write("src/wire/a_test.cc", "TEST(A, W1_T7_Both) {\n}\n" + tests)

    def test_every_rule_has_a_test(self):
        code, text = self.run_check(self.CHECK)
        self.assertEqual(code, 0, text)
        count = len(self.cases)
        self.assertIn(f"2 rules, 2 with parts not yet; {count} cases; {count + 1} tests", text)

    def test_rule_without_a_test(self):
        self.write("docs/protocol.md", "- W1 A frame.\n- W2 Metadata.\n")
        self.assert_fault(self.CHECK, "no test carries W2")

    def test_case_without_a_test(self):
        self.write("src/wire/a_test.cc", "TEST(A, W1_T7_Both) {\n}\n")
        self.assert_fault(self.CHECK, "no test carries case B12")

    def test_number_in_a_comment_or_late_in_a_name_does_not_count(self):
        self.write("docs/protocol.md", "- W2 Metadata.\n")
        self.write("src/wire/b_test.cc", "// TEST(A, W2_Text) {\nTEST(A, Text_W2) {\n}\n")
        self.assert_fault(self.CHECK, "no test carries W2")

    def test_python_tests_count(self):
        self.write("docs/protocol.md", "- S4 Nothing is left.\n")
        self.write("tests/cli/a_test.py", "def test_s4_nothing_is_left():\n    pass\n")
        self.assertEqual(self.run_check(self.CHECK)[0], 0)


if __name__ == "__main__":
    unittest.main()
