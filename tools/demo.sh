#!/usr/bin/env bash
# Runs the demo, on SmolLM2-135M unless `--model DIR` names another model.
#
#   tools/demo.sh [OPTIONS of `changeover demo`]
set -euo pipefail
cd "$(dirname "$0")/.."
case " $* " in
  *" --model"* | *" --help "*) model=() ;;
  *)
    tools/setup.sh --demo
    model=(--model "$(.cache/venv/bin/python tools/fetch_smollm2.py)")
    ;;
esac
exec build/bin/changeover demo "${model[@]}" "$@"
