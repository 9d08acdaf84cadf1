#!/usr/bin/env bash
# deny.sh [--if-present]: licences, bans and sources of what is linked, as deny.toml has them. cargo-deny takes two
# minutes to compile and is installed into build/cargo once; with --if-present a machine without it is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/cargo/bin:$PATH"
if ! command -v cargo-deny >/dev/null; then
  if [[ ${1:-} == --if-present ]]; then
    echo "deny: cargo-deny is not installed; make deny installs it and checks licences, bans and sources"
    exit 0
  fi
  cargo install --quiet --locked --version 0.20.2 --root build/cargo cargo-deny
fi
exec cargo-deny --log-level error check licenses bans sources
