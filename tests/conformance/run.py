"""Runs the foreign test suites plain and sealed on every MPI, and writes docs/conformance.md and docs/conformance.json.

    python tests/conformance/run.py --write                 everything (make conformance)
    python tests/conformance/run.py --mpi mpich --ranks 2 --suite mpi4py --plain-only
    python tests/conformance/run.py --write-plain           what fails by itself: tests/conformance/plain.json

A suite's result is a table of outcomes by test name. Sealing changes nothing when every test that is ok plain is ok
sealed; what fails plain by itself is listed by name and does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conformance.suites import IMB, Result, mpi4py_modules, run_imb, run_mpi4py, run_operations
from harness import mpis
from harness.jobs import Runner
from harness.mpis import ROOT, Mpi

PLAIN = Path(__file__).with_name("plain.json")
IMB_MPIS = ("mpich", "intel")


def known_plain_failures() -> dict[str, dict[str, str]]:
    """Suite, MPI and ranks -> tests that fail without Gambeson, as `--write-plain` found them."""
    return json.loads(PLAIN.read_text()) if PLAIN.is_file() else {}


def plan(arguments: argparse.Namespace) -> Iterator[tuple[str, Mpi, int]]:
    for name in arguments.mpi:
        try:
            mpi = mpis.find(name)
        except mpis.Unavailable as reason:
            print(f"left out: {reason}", file=sys.stderr)
            continue
        for suite in arguments.suite:
            if suite.startswith("IMB") and name not in IMB_MPIS:
                continue
            if suite == "operations" and name in IMB_MPIS and not arguments.all_operations:
                continue
            for ranks in arguments.ranks:
                yield suite, mpi, ranks


def run(suite: str, runner: Runner, mpi: Mpi, ranks: int, modules: list[str]) -> Result:
    if suite == "mpi4py":
        known = known_plain_failures().get(f"mpi4py {mpi.name} {ranks}", {})
        hangs = [name for name, outcome in known.items() if outcome == "hang"]
        return run_mpi4py(runner, mpi, ranks, modules or mpi4py_modules(), exclude=hangs)
    if suite == "operations":
        return run_operations(runner, mpi, ranks)
    return run_imb(runner, mpi, ranks, next(imb for imb in IMB if imb.name == suite))


def lost(plain: Result, sealed: Result) -> dict[str, str]:
    """Tests that are ok plain and not ok sealed."""
    gone = {}
    for name, outcome in sorted(plain.outcomes.items()):
        after = sealed.outcomes.get(name, "did not run")
        if outcome == "ok" and after != "ok":
            gone[name] = after
    return gone


def gained(plain: Result, sealed: Result) -> list[str]:
    return [name for name, outcome in sorted(plain.not_ok.items()) if sealed.outcomes.get(name) == "ok"]


def shown(failures: dict[str, str]) -> str:
    return "; ".join(f"{name.split('.', 1)[-1]} ({outcome})" for name, outcome in failures.items()) or "none"


def markdown(pairs: list[tuple[Result, Result]]) -> str:
    lines = [
        "# Conformance: other projects' MPI test suites, plain and sealed",
        "",
        "Written by `make conformance`. Every suite runs twice on the same MPI: over libfabric's tcp without Gambeson,",
        "and under `gambeson run --intra-host sealed`. A test counts as kept when it is ok in both; what fails without",
        "Gambeson is named below and cannot be kept. A hang is a test without progress for 30 s.",
        "",
        "| suite | MPI | ranks | ok plain | kept sealed | lost | gained | seconds plain / sealed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for plain, sealed in pairs:
        ok = len(plain.names("ok"))
        gone = lost(plain, sealed)
        cells = [plain.suite, plain.mpi, plain.ranks, ok, ok - len(gone), len(gone), len(gained(plain, sealed))]
        lines.append("| " + " | ".join(map(str, cells)) + f" | {plain.seconds:.0f} / {sealed.seconds:.0f} |")
    lines += ["", "## Lost under sealing", ""]
    for plain, sealed in pairs:
        if gone := lost(plain, sealed):
            lines.append(f"- {plain.suite}, {plain.mpi}, {plain.ranks} ranks: {shown(gone)}")
    lines += ["", "## Fails by itself, without Gambeson", ""]
    for plain, _ in pairs:
        if plain.not_ok:
            lines.append(f"- {plain.suite}, {plain.mpi}, {plain.ranks} ranks: {shown(plain.not_ok)}")
    lines += ["", "## Works sealed only", ""]
    for plain, sealed in pairs:
        if names := gained(plain, sealed):
            lines.append(f"- {plain.suite}, {plain.mpi}, {plain.ranks} ranks: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", nargs="+", default=list(mpis.ALL), choices=mpis.ALL)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    suites = ["mpi4py", "operations", *(imb.name for imb in IMB)]
    parser.add_argument("--suite", nargs="+", default=suites, choices=suites)
    parser.add_argument("--modules", nargs="+", default=[], help="only these modules of mpi4py's tests")
    parser.add_argument("--all-operations", action="store_true", help="the fixed loops on MPICH and Intel MPI too")
    parser.add_argument("--plain-only", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md and .json")
    parser.add_argument(
        "--write-plain", action="store_true", help="write tests/conformance/plain.json, running plain only"
    )
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    gambeson = Path(os.environ.get("GAMBESON", target / "release" / "gambeson"))
    pairs: list[tuple[Result, Result]] = []
    plain_failures = known_plain_failures()
    failed = False
    for suite, mpi, ranks in plan(arguments):
        plain = run(suite, Runner(gambeson, plain=True), mpi, ranks, arguments.modules)
        print(
            f"{plain.key}: {len(plain.names('ok'))} ok in {plain.seconds:.0f} s, not: {shown(plain.not_ok)}", flush=True
        )
        if arguments.write_plain:
            plain_failures[plain.key] = plain.not_ok
            PLAIN.write_text(json.dumps(plain_failures, indent=1, sort_keys=True) + "\n")
        if arguments.plain_only or arguments.write_plain:
            continue
        sealed = run(suite, Runner(gambeson), mpi, ranks, arguments.modules)
        gone = lost(plain, sealed)
        failed = failed or bool(gone)
        print(f"{sealed.key} sealed in {sealed.seconds:.0f} s, lost: {shown(gone)}", flush=True)
        for note in sealed.notes:
            print(f"  {note}", flush=True)
        pairs.append((plain, sealed))
        if arguments.write:
            docs = ROOT / "docs"
            docs.mkdir(exist_ok=True)
            (docs / "conformance.md").write_text(markdown(pairs))
            (docs / "conformance.json").write_text(
                json.dumps([{**vars(result)} for pair in pairs for result in pair], indent=1) + "\n"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
