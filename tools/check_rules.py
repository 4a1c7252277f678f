#!/usr/bin/env python3
"""Which rules of docs/protocol.md and which field cases have a test that carries their number.

    tools/check_rules.py [ROOT] [--list]

A test carries a number by its name: TEST(Transaction, T7_FenceRisesBeforeFirstByte),
TEST(Ledger, CaseB12_OneTensorPerBucket), def test_s4_nothing_is_left, def test_case_b57_port_zero.
A name may carry several: R1_R2_DrainsToEnd. Fails where a rule or case in scope has none. The
section "Not yet" of docs/protocol.md lists parts that are missing; a rule that stands there alone
is missing as a whole and needs no test.
"""
import argparse
import collections
import pathlib
import re
import sys

FAMILIES = "WURTVS"
CASES = (
    "B01 B02 B10 B11 B12 B13 B15 B16 B17 B18 B33 B36 B37 B38 B45 B46 B47 B49 "
    "B56 B57 B60 N1 N3 N6 N10 N15").split()

RULE_LINE = re.compile(rf"^(?:[-*] )?(?:\*\*)?([{FAMILIES}]\d+)\b")
CPP_TEST = re.compile(
    r"^(?:TYPED_)?(?:TEST(?:_[FP])?|RC_GTEST_(?:FIXTURE_)?PROP)\(\s*\w+,\s*(\w+)", re.M)
PYTHON_TEST = re.compile(r"^\s*def test_(\w+)", re.M)
NUMBER = re.compile(rf"(Case)?((?:[{FAMILIES}]|B|N)\d+)$", re.I)


def rules_of(text):
    """(rules, rules with a part not yet); a heading that says "not yet" starts the second."""
    rules, later, in_later = set(), set(), False
    for line in text.splitlines():
        if line.startswith("#"):
            in_later = "not yet" in line.lower()
        elif in_later and line.startswith("|"):
            later.update(re.findall(rf"\b[{FAMILIES}]\d+\b", line.split("|")[1]))
        elif match := RULE_LINE.match(line):
            (later if in_later else rules).add(match[1])
    return rules, later


def numbers_of(test_name):
    """The numbers at the front of a test's name: {"T7"}, {"R1", "R2"}, {"case B12"}."""
    found, case = set(), False
    for word in test_name.split("_"):
        if word.lower() == "case":
            case = True
        elif match := NUMBER.match(word):
            case = case or bool(match[1]) or match[2][0].upper() in "BN"
            number = match[2].upper()
            found.add(("case " if case else "") + number)
        else:
            break
    return found


def tests_of(root):
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if parts[0] in {"build", ".cache", ".git"} or path.suffix not in {".cc", ".h", ".py"}:
            continue
        pattern = PYTHON_TEST if path.suffix == ".py" else CPP_TEST
        if "test" in path.name:
            for match in pattern.finditer(path.read_text()):
                yield match[1]


def sort_key(number):
    family, digits = re.fullmatch(r"(\D+)(\d+)", number).groups()
    return family, int(digits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--list", action="store_true", help="tests per rule and case")
    arguments = parser.parse_args()

    rules, later = rules_of((arguments.root / "docs/protocol.md").read_text())
    counts, total = collections.Counter(), 0
    for name in tests_of(arguments.root):
        total += 1
        counts.update(numbers_of(name))
    wanted = sorted(rules, key=sort_key)
    wanted += [f"case {case}" for case in sorted(CASES, key=sort_key)]
    missing = [number for number in wanted if not counts[number]]
    if arguments.list:
        for number in wanted:
            print(f"{number}: {counts[number]}")
    print(f"{len(rules)} rules, {len(later)} with parts not yet; {len(CASES)} cases; "
          f"{total} tests, {sum(counts.values())} numbers on them")
    for number in missing:
        print(f"no test carries {number}")
    if not rules:
        print("docs/protocol.md names no rule")
    return 1 if missing or not rules else 0


if __name__ == "__main__":
    sys.exit(main())
