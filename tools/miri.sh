#!/usr/bin/env bash
# Runs gambeson-proto where mistakes with memory show: the matching engine under Miri, and all of it, aws-lc's C included,
# under Valgrind's memcheck in a debug build, where rustc checks the preconditions of unsafe functions and arithmetic.
#
# Miri cannot call C, and whatever derives a key or computes a MAC calls aws-lc, so matching is what is left for it: the
# largest part without keys. The crate's unsafe code is those calls, which only memcheck can follow. Of gambeson-link Miri
# sees the rings of shared memory, which are its unsafe code, with two threads in place of the two processes; of
# gambeson-pages the boxes, over the system's allocator.
set -euo pipefail
cd "$(dirname "$0")/.."
ran=no
if cargo +nightly miri --version >/dev/null 2>&1; then
  export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
  RUSTUP_TOOLCHAIN=nightly cargo miri test --locked -p gambeson-proto --test matching_model
  RUSTUP_TOOLCHAIN=nightly cargo miri test --locked -p gambeson-link --lib mapping
  RUSTUP_TOOLCHAIN=nightly cargo miri test --locked -p gambeson-pages --lib
  echo "miri: nothing found in matching, in the rings of shared memory and in boxes for secrets"
  ran=yes
else
  echo "miri: there is no Miri here (rustup toolchain install nightly --component miri)"
fi
if command -v valgrind >/dev/null; then
  triple=$(rustc -vV | sed -n 's/^host: //p')
  runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER
  export "$runner=valgrind --quiet --error-exitcode=99 --leak-check=no --track-origins=yes"
  # Valgrind runs one thread at a time and some fifty times slower: one seed for every simulation.
  GAMBESON_SEED=${GAMBESON_SEED:-7} cargo test --locked -p gambeson-proto --lib --test vectors --test simulation \
    --test matching_model -- --test-threads=1
  echo "miri: memcheck found nothing"
  ran=yes
fi
if [ "$ran" = no ]; then
  echo "miri: nor valgrind" >&2
  exit 1
fi
