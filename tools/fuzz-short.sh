#!/usr/bin/env bash
# Runs every fuzz target over its seeds, then for FUZZ_SECONDS (20) each under libFuzzer and
# AddressSanitizer. Arguments name targets; without any, all run. What is found stands in
# fuzz/artifacts/<target>/, inputs worth keeping in build/fuzz/<target>/.
#
# It does without cargo-fuzz and without a nightly toolchain: coverage is a pass of stable rustc's
# LLVM, and only -Zsanitizer needs RUSTC_BOOTSTRAP. `cargo +nightly fuzz run <target>` works too.
set -euo pipefail
cd "$(dirname "$0")/.."

triple=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
seconds=${FUZZ_SECONDS:-20}

flags=(
    -Zsanitizer=address
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0
    -Ccodegen-units=1
    --cfg fuzzing
)
# With --target the flags reach the targets and their dependencies, not the build scripts.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" ${CARGO:-cargo} build --quiet --release --locked \
    --manifest-path fuzz/Cargo.toml --target "$triple" --target-dir "$target_dir"

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for main in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$main" .rs)"); done
fi

failed=()
for target in "${targets[@]}"; do
    found=build/fuzz/$target
    log=build/fuzz/$target.log
    artifacts=fuzz/artifacts/$target
    mkdir -p "$found" "$artifacts"
    options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$artifacts/" -print_final_stats=1)
    if "$target_dir/$triple/release/$target" "${options[@]}" "$found" "fuzz/corpus/$target" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
        coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
        printf 'fuzz %-10s ok: %s runs in %s s, %s edges\n' "$target" "$runs" "$seconds" "$coverage"
    else
        printf 'fuzz %-10s FAILED: %s, input in %s/\n' "$target" "$log" "$artifacts"
        tail -40 "$log"
        failed+=("$target")
    fi
done
[ ${#failed[@]} -eq 0 ]
