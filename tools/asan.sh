#!/usr/bin/env bash
# A real MPI job with the provider built under AddressSanitizer: the functional programs under MPICH, sealed.
# The provider is loaded into a Python that was not built with ASan, so the sanitizer's runtime is preloaded; leaks are
# not looked for, because Python, MPICH and libfabric keep memory to the end.
set -euo pipefail
cd "$(dirname "$0")/.."
triple=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(gcc -print-file-name=libasan.so)
if ! cargo +nightly --version >/dev/null 2>&1 || [[ ! -e $runtime ]]; then
  echo "asan: a nightly toolchain and gcc's libasan are needed (rustup toolchain install nightly; apt-get install gcc)" >&2
  exit 1
fi
out=${CARGO_TARGET_DIR:-target}/asan
RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt" cargo +nightly build --quiet --locked -p gambeson-fabric \
  --target "$triple" --target-dir "$out"
cargo build --quiet --locked --release -p gambeson -p gambeson-guard
# Beside each other, as `gambeson` looks for its libraries beside itself.
here=$out/stage
mkdir -p "$here"
release=${CARGO_TARGET_DIR:-target}/release
install -m 755 "$release/gambeson" "$here/gambeson"
install -m 755 "$release/libgambeson_guard.so" "$here/libgambeson-guard.so"
install -m 755 "$out/$triple/debug/libgambeson_fi.so" "$here/libgambeson-fi.so"
export ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:abort_on_error=0:exitcode=99:log_path=$PWD/build/asan"
rm -f build/asan.*
status=0
for program in sizes:2 matching:3 datatypes:2 collectives:3 volume:3 threads:2 mixed:3; do
  name=${program%:*} ranks=${program#*:}
  if timeout 600 "$here/gambeson" run --quiet --intra-host sealed -- build/venv-mpich/bin/mpiexec -n "$ranks" \
    env LD_PRELOAD="$runtime" build/venv-mpich/bin/python "tests/programs/$name.py" >"build/asan-$name.log" 2>&1; then
    echo "asan: $name on $ranks ranks: ok"
  else
    echo "asan: $name on $ranks ranks: FAILED, see build/asan-$name.log"
    status=1
  fi
done
if compgen -G 'build/asan.*' >/dev/null; then
  echo "asan: reports:"
  grep -h -m1 'ERROR: AddressSanitizer' build/asan.* || true
  status=1
fi
exit $status
