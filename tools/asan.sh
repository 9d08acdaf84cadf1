#!/usr/bin/env bash
# Real MPI jobs with the provider, and the C code of its cryptography, under AddressSanitizer: the functional programs,
# sealed, under MPICH and Open MPI. Arguments name programs (name:ranks); without any, all run.
#
# It does without a nightly toolchain: only -Zsanitizer needs RUSTC_BOOTSTRAP. The runtime is gcc's, preloaded, because
# the provider is loaded into a Python that was not built with the sanitizer. Leaks are not looked for: Python, the MPI
# libraries and libfabric keep memory to the end. Under --cfg asan the provider's memory comes from malloc, where the
# sanitizer watches it; secret pages are tested elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
triple=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(gcc -print-file-name=libasan.so)
if [[ ! -e $runtime ]]; then
  echo "asan: gcc's libasan is missing (apt-get install gcc)" >&2
  exit 1
fi
target=${CARGO_TARGET_DIR:-target}
out=$target/asan
# With --target the flags reach the provider and its dependencies, not the build scripts.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt --cfg asan -Adead_code" \
  CC=gcc CFLAGS="-fsanitize=address -fno-omit-frame-pointer" \
  cargo build --quiet --locked -p gambeson-fabric --target "$triple" --target-dir "$out"
cargo build --quiet --locked --release -p gambeson -p gambeson-guard -p gambeson-mpi
# Beside each other, as `gambeson` looks for its libraries beside itself.
here=$out/stage
mkdir -p "$here" build/asan
install -m 755 "$target/release/gambeson" "$target/release/gambeson-fabric-info" "$here/"
install -m 755 "$target/release/libgambeson_guard.so" "$here/libgambeson-guard.so"
install -m 755 "$target/release/libgambeson_mpi.so" "$here/libgambeson-mpi.so"
install -m 755 "$out/$triple/debug/libgambeson_fi.so" "$here/libgambeson-fi.so"
[[ $(nm -D "$here/libgambeson-fi.so") == *__asan_report_load* ]] || { echo "asan: the provider has no sanitizer" >&2; exit 1; }
export ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:exitcode=99:log_path=$PWD/build/asan/report"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
rm -f build/asan/*
programs=("$@")
if [[ $# -eq 0 ]]; then
  programs=(sizes:2 matching:3 datatypes:2 collectives:3 volume:3 threads:2 one_sided:3 mixed:3)
fi
status=0
for mpi in mpich openmpi; do
  for program in "${programs[@]}"; do
    name=${program%:*} ranks=${program#*:} log=build/asan/$mpi-${program%:*}.log
    launcher=("build/venv-$mpi/bin/mpiexec")
    # Open MPI 5 refuses windows, and its matched probe fails over tcp: docs/known-issues.md.
    more=()
    if [[ $mpi == openmpi ]]; then
      launcher+=(--oversubscribe --bind-to none)
      case $name in one_sided) continue ;; mixed) more=(--skip with_one_sided) ;; esac
    fi
    # In front of the guard, which is preloaded too.
    preload='export LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}"; exec "$@"'
    if timeout 300 "$here/gambeson" run --quiet --intra-host sealed -- "${launcher[@]}" -n "$ranks" \
      sh -c "$preload" "$runtime" "build/venv-$mpi/bin/python" "tests/programs/$name.py" "${more[@]}" >"$log" 2>&1; then
      echo "asan: $mpi, $name on $ranks ranks: ok"
    else
      echo "asan: $mpi, $name on $ranks ranks: FAILED, see $log"
      status=1
    fi
  done
done
if compgen -G 'build/asan/report*' >/dev/null; then
  echo "asan: reports in build/asan:"
  grep -h -m1 'ERROR: AddressSanitizer' build/asan/report* || true
  status=1
fi
exit $status
