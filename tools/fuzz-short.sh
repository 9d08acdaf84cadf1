#!/usr/bin/env bash
# Every fuzz target: its corpus first, then $FUZZ_SECONDS (default 20) of new inputs. Needs cargo-fuzz and a nightly
# toolchain; cargo-fuzz is installed into build/cargo when it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-20}
if [[ ! -d fuzz ]]; then
  echo "fuzz-short: there are no fuzz targets yet (fuzz/)" >&2
  exit 0
fi
export PATH="$PWD/build/cargo/bin:$PATH"
if ! command -v cargo-fuzz >/dev/null; then
  cargo install --locked --quiet --root build/cargo cargo-fuzz
fi
for target in $(cargo +nightly fuzz list); do
  echo "fuzz-short: $target for $seconds s"
  corpus=fuzz/corpus/$target
  # New inputs go to a folder of their own: the checked-in corpus grows by hand.
  mkdir -p "build/fuzz/$target" "$corpus"
  cargo +nightly fuzz run "$target" "build/fuzz/$target" "$corpus" -- -max_total_time="$seconds" -verbosity=0 -print_final_stats=0
done
