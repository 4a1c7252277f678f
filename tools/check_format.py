#!/usr/bin/env python3
"""Fails where a C++ source is not as clang-format leaves it (`make format` mends it).

    tools/check_format.py [ROOT]

Releases of clang-format differ, so only one counts; tools/setup.sh installs it.
"""
import pathlib
import re
import shutil
import subprocess
import sys


MAJOR = "14"


def find_clang_format():
    for name in (f"clang-format-{MAJOR}", "clang-format"):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {MAJOR}\.", text):
                return path
    sys.exit(f"no clang-format {MAJOR}: run tools/setup.sh")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    files = [str(p) for folder in ("include", "src", "cli", "tests", "examples", "bench", "sim")
             for p in sorted((root / folder).rglob("*")) if p.suffix in {".h", ".cc"}]
    done = subprocess.run([find_clang_format(), "--dry-run", "-Werror", "--style=file", *files],
                          capture_output=True, text=True)
    bad = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.M)))
    for path in bad:
        print(f"{pathlib.Path(path).relative_to(root)}: not formatted; run `make format`")
    if done.returncode and not bad:
        print(done.stderr)
    if not done.returncode:
        print(f"format ok: {len(files)} files")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
