#!/usr/bin/env python3
"""Fails where a source breaks a limit of this house: file and function length, columns, and words.

    tools/check_limits.py [ROOT]
"""
import ast
import pathlib
import re
import subprocess
import sys

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
CODE = {".h", ".cc", ".cu", ".py", ".sh"}
# One letter in brackets keeps a pattern from finding itself.
WORDS = [
    (re.compile(r"/(w[o]rk|f[a]rm|r[o]ot|h[o]me)/[a-z]"), "a path of one machine"),
    (re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b"), "a left-over mark; do it or drop it"),
    (re.compile(r"not (yet )?imp[l]emented|NotImp[l]ementedError"), "unfinished code"),
    (re.compile(r"GTEST_SK[I]P\(\)\s*;|DISAB[L]ED_"), "a test that is not run, without a reason"),
]
SLEEP = re.compile(
    r"sleep_f[o]r|sleep_un[t]il|\busl[e]ep\(|nanosl[e]ep|time\.sl[e]ep|^\s*sl[e]ep \d")


def tracked(root):
    names = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                            "--exclude-standard"], capture_output=True)
    if names.returncode == 0:
        paths = [root / name for name in names.stdout.decode().split("\0") if name]
    else:  # A source archive without its history.
        paths = [p for p in root.rglob("*") if "build" not in p.parts and ".cache" not in p.parts]
    return [p for p in paths if p.is_file() and not p.is_symlink()]


def cpp_functions(lines):
    """(first line, length) of every function of a clang-formatted file, at depth 0 and 1.

    A function ends with a lone `}`; a class, an enum or an initialiser ends with `};`.
    """
    for indent in ("", "  "):
        start = None
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith(("//", "#")):
                continue
            if not line.startswith(indent) or line[len(indent):len(indent) + 1] in (" ", "\t"):
                continue
            text = line[len(indent):]
            if text.startswith("}"):
                if text == "}" and start is not None:
                    yield start, number - start + 1
                start = None
            elif start is None:
                start = number
            if text.endswith((";", ":")) or re.match(r"(inline )?namespace|extern \"C\" \{", text):
                start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def is_test(name):
    return name.startswith(("tests/", "sim/", "python/tests/")) or "_test." in name


def check_file(name, text):
    faults = []
    lines = text.splitlines()
    suffix = pathlib.PurePath(name).suffix
    if suffix in CODE:
        if len(lines) > FILE_LINES_MAX:
            faults.append(f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}: split it")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                faults.append(f"{name}:{number}: {len(line)} columns, at most {COLUMNS_MAX}")
        functions = cpp_functions(lines) if suffix in {".h", ".cc", ".cu"} else ()
        for number, length in python_functions(text) if suffix == ".py" else functions:
            if length > FUNCTION_LINES_MAX:
                faults.append(f"{name}:{number}: a function of {length} lines, at most "
                              f"{FUNCTION_LINES_MAX}")
    for number, line in enumerate(lines, 1):
        for pattern, why in WORDS:
            if match := pattern.search(line):
                faults.append(f"{name}:{number}: '{match[0]}': {why}")
        if is_test(name) and SLEEP.search(line):
            faults.append(f"{name}:{number}: a sleep in a test; wait for an event instead")
    return faults


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults, count = [], 0
    for path in tracked(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # Binary: a fixture or a corpus file.
        name = path.relative_to(root).as_posix()
        if name.startswith(("tests/corpus/", "tests/fixtures/")):
            continue
        count += 1
        faults += check_file(name, text)
    print("\n".join(faults) or f"limits ok: {count} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
