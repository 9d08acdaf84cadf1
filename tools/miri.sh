#!/usr/bin/env bash
# Runs gambeson-proto's tests under Miri. What calls aws-lc cannot run there (C code) and is left out by module.
#
# Miri comes with nightly toolchains alone. Where there is none, the whole of gambeson-proto, aws-lc included, runs under
# Valgrind's memcheck instead, in a debug build: rustc then checks the preconditions of unsafe functions and arithmetic
# for overflow. That sees reads of what was never written and accesses outside of blocks, but not what only Miri sees:
# aliasing rules, and undefined behaviour that does no harm yet.
set -euo pipefail
cd "$(dirname "$0")/.."
if cargo +nightly miri --version >/dev/null 2>&1; then
  export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
  export RUSTUP_TOOLCHAIN=nightly
  # The modules without C underneath: the record codec, matching and the policy.
  exec cargo miri test -p gambeson-proto --lib -- ${MIRI_TESTS:-record:: matching:: policy::}
fi
if ! command -v valgrind >/dev/null; then
  echo "miri: neither a nightly toolchain with Miri (rustup toolchain install nightly --component miri) nor valgrind" >&2
  exit 1
fi
echo "miri: there is no Miri here; running Valgrind's memcheck instead"
triple=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER
export "$runner=valgrind --quiet --error-exitcode=99 --leak-check=no --track-origins=yes"
# Valgrind runs one thread at a time and some fifty times slower: one seed for every simulation.
GAMBESON_SEED=${GAMBESON_SEED:-7} cargo test --locked -p gambeson-proto --lib --test vectors --test simulation \
  --test matching_model -- --test-threads=1
echo "miri: memcheck found nothing"
