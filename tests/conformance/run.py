"""Runs the foreign test suites plain and sealed on every MPI, and writes what they gave to docs/conformance.md.

    python tests/conformance/run.py --write                    everything (make conformance)
    python tests/conformance/run.py --write --plain-only       what fails by itself: tests/conformance/plain.json
    python tests/conformance/run.py --mpi mpich --ranks 2 --suite mpi4py --modules test_win --sealed-only

Sealing changes nothing when every test that is ok plain is ok sealed. The status is 1 when a test is lost.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conformance.files import FILE_SUITES, parts_of, run_files
from conformance.record import ALL, Part, Record, compare, records, shown
from conformance.suites import (
    IMB,
    IMB_MPIS,
    Outcomes,
    Result,
    mpi4py_modules,
    run_imb,
    run_mpi4py,
    run_operations,
)
from harness import mpis
from harness.jobs import Runner
from harness.mpis import ROOT, Mpi


def plan(arguments: argparse.Namespace) -> Iterator[tuple[Mpi, int, str, str]]:
    """MPI, ranks, suite and part of it: a module of mpi4py's tests, or another suite as a whole."""
    for name in arguments.mpi:
        try:
            mpi = mpis.find(name)
        except mpis.Unavailable as reason:
            print(f"left out: {reason}", file=sys.stderr)
            continue
        for ranks in arguments.ranks:
            for suite in arguments.suite:
                if suite.startswith("IMB") and name not in IMB_MPIS:
                    continue
                if ranks not in FILE_SUITES.get(suite, (ranks,)):
                    continue
                wanted = parts_of(suite) if suite in FILE_SUITES else mpi4py_modules() if suite == "mpi4py" else [suite]
                for part in [part for part in wanted if part in arguments.modules] or wanted:
                    yield mpi, ranks, suite, part


def run(runner: Runner, mpi: Mpi, ranks: int, suite: str, part: str, known: Outcomes) -> Result:
    if suite == "mpi4py":
        return run_mpi4py(runner, mpi, ranks, [part], known)
    if suite in FILE_SUITES:
        return run_files(runner, mpi, ranks, suite, part, known)
    if suite == "operations":
        return run_operations(runner, mpi, ranks, known)
    return run_imb(runner, mpi, ranks, next(imb for imb in IMB if imb.name == suite), known)


def library_version(mpi: Mpi) -> str:
    program = ["-c", "from mpi4py import MPI; print(MPI.Get_library_version())"]
    job = Runner(Path("unused"), plain=True).run(mpi, [mpi.python, *program], n=1).check()
    return re.sub(r"\s+", " ", re.split(r"\n|, package", job.stdout.strip())[0])


def measure(runner: Runner, mpi: Mpi, ranks: int, suite: str, part: str, arguments: argparse.Namespace) -> list[Result]:
    """Runs the part plain, then sealed, as asked."""
    key = f"{suite} {mpi.name} {ranks}"
    plain, sealed = Record.load("plain"), Record.load("sealed")
    recorded = plain.not_ok(key)
    results = []
    if not arguments.sealed_only and not (arguments.missing and part in plain.suites.get(key, {})):
        known = recorded if arguments.again else {}
        results.append(run(replace(runner, plain=True), mpi, ranks, suite, part, known))
        recorded = results[-1].not_ok
    if not arguments.plain_only and not (arguments.missing and part in sealed.suites.get(key, {})):
        results.append(run(runner, mpi, ranks, suite, part, {} if arguments.try_all else recorded))
    return results


def say(result: Result, part: str) -> None:
    name = result.key if part == result.suite else f"{result.key} {part}"
    mode = "sealed" if result.sealed else "plain"
    ok = len(result.names("ok"))
    print(f"{name} {mode}: {ok} ok in {result.seconds:.0f} s, not: {shown(result.not_ok)}")
    print("".join(f"  {note}\n" for note in result.notes), end="", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", nargs="+", default=list(mpis.ALL), choices=mpis.ALL)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--suite", nargs="+", default=ALL, choices=ALL)
    help_ = "only these modules of mpi4py's tests, or programs of HDF5's"
    parser.add_argument("--modules", nargs="+", default=[], help=help_)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--plain-only", action="store_true", help="run plain only")
    only.add_argument("--sealed-only", action="store_true", help="run sealed only, against the recorded plain results")
    parser.add_argument("--missing", action="store_true", help="run only what is not recorded yet")
    parser.add_argument("--try-all", action="store_true", help="run sealed even what hangs or dies plain")
    parser.add_argument("--again", action="store_true", help="add plain failures to the recorded ones, keep those")
    parser.add_argument("--write", action="store_true", help="record the results and write docs/conformance.md")
    arguments = parser.parse_args()
    # Ended from outside, it still ends the job it runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    gambeson = Path(os.environ.get("GAMBESON", target / "release" / "gambeson"))
    failed = False
    versions: dict[str, str] = {}
    for mpi, ranks, suite, part in plan(arguments):
        if mpi.name not in versions:
            versions[mpi.name] = library_version(mpi)
        try:
            results = measure(Runner(gambeson), mpi, ranks, suite, part, arguments)
        except mpis.Unavailable as reason:
            print(f"left out: {suite} {mpi.name} {ranks} {part}: {reason}", file=sys.stderr)
            continue
        with records(arguments.write) as (plain, sealed):
            for result in results:
                if result.sealed:
                    sealed.take(result)
                else:
                    plain.take(result, arguments.again)
                    plain.versions |= versions | ({"Intel MPI Benchmarks": result.version} if result.version else {})
                say(result, part)
            key = f"{suite} {mpi.name} {ranks}"
            ran = {part: plain.suites.get(key, {}).get(part, Part())}
            difference = compare(ran, sealed.suites.get(key, {}))
            if not arguments.plain_only and (difference.lost or difference.missing):
                failed = True
                print(f"  lost: {shown(difference.lost)} {difference.missing or ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
