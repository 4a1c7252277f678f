#!/usr/bin/env bash
# Installs what a build and the tests need and this machine lacks: the system packages of
# tools/packages.apt (as root, or through sudo). Says what it installs; where nothing is missing it
# ends at once and prints nothing.
#
#   tools/setup.sh [--demo] [--fuzz]
#
#   --demo   also what fetching the demo's model needs: tools/packages.pip into .cache/venv
#   --fuzz   also what the fuzz targets need: clang
set -euo pipefail
cd "$(dirname "$0")/.."
parts=" $* "

wanted() {  # the names in packages.apt: the first part, and those that were asked for
  local part="" line
  while read -r line; do
    case "$line" in
      "#"* | "") ;;
      "["*) part=${line//[\[\]]/} ;;
      *) if [ -z "$part" ] || [[ "$parts" == *" --$part "* ]]; then echo "$line"; fi ;;
    esac
  done <tools/packages.apt
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: not root and there is no sudo; as root run: $*" >&2
    exit 1
  fi
}

retried() {  # three tries, since a mirror may fail once
  "$@" || { echo "setup: trying again: $*" >&2; "$@"; } || "$@"
}

have() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

command -v dpkg-query >/dev/null || {
  echo "setup: this script knows Debian and Ubuntu only; elsewhere install what" \
    "tools/packages.apt lists, then: cmake --preset release && cmake --build --preset release" >&2
  exit 1
}

missing=()
while read -r package; do
  have "$package" || missing+=("$package")
done < <(wanted)
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${#missing[@]} system packages: ${missing[*]}"
  retried as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  retried as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" </dev/null >/dev/null
fi

venv=.cache/venv
if [[ "$parts" == *" --demo "* ]] && {
  ! cmp -s tools/packages.pip "$venv/packages.pip" || ! "$venv/bin/python" -c '' 2>/dev/null
}; then
  echo "setup: installing into $venv: $(grep -v '^#' tools/packages.pip | tr '\n' ' ')"
  rm -rf "$venv"
  mkdir -p .cache
  /usr/bin/python3 -m venv "$venv"
  retried "$venv/bin/pip" install --quiet --disable-pip-version-check \
    --requirement tools/packages.pip
  cp tools/packages.pip "$venv/packages.pip"
fi
