#!/usr/bin/env bash
# Runs gambeson-proto's tests under Miri. What calls aws-lc cannot run there (C code); those tests are marked
# #[cfg_attr(miri, ignore)] or left out below by module.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
  echo "miri: a nightly toolchain with Miri is needed (rustup toolchain install nightly --component miri)" >&2
  exit 1
fi
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
export RUSTUP_TOOLCHAIN=nightly
# The modules without C underneath: the record codec, matching, the ledger page and the policy.
exec cargo miri test -p gambeson-proto --lib -- ${MIRI_TESTS:-record:: matching:: ledger:: policy::}
