#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS, from its corpus in tests/corpus/<target>/.
# What a run finds on the way stays in build/fuzz/corpus/<target>/ for the next one.
#
#   tools/fuzz.sh [SECONDS] [TARGET...]     default: 60 seconds, every target
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
cmake --preset fuzz
cmake --build --preset fuzz
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for binary in build/fuzz/bin/*_fuzz; do
    targets+=("$(basename "$binary")")
  done
fi
for target in "${targets[@]}"; do
  found=build/fuzz/corpus/$target
  mkdir -p "$found"
  seeds=()
  [ -d "tests/corpus/$target" ] && seeds=("tests/corpus/$target")
  failed=0
  echo "fuzz: $target for $seconds s"
  "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/$target-" "$found" "${seeds[@]}" \
    >"build/fuzz/$target.log" 2>&1 || failed=1
  grep -E 'ERROR|SUMMARY|number_of_executed_units|runtime error' "build/fuzz/$target.log" || true
  if [ "$failed" = 1 ]; then
    echo "fuzz: $target failed; the input is kept as build/fuzz/$target-*" >&2
    exit 1
  fi
done
