"""What the suites gave, plain (plain.json) and sealed (sealed.json), and the page made of it, docs/conformance.md.

Kept by module of a suite, so that a part of a suite can be run again without the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conformance.files import FILE_SUITES, MPI4PY_MODULES, parts_of
from conformance.h5py_suite import H5PY
from conformance.hdf5_suite import HDF5_PROGRAMS
from conformance.pnetcdf_suite import FOLDERS
from conformance.suites import IMB, IMB_MPIS, MPI4PY, REST, STALL_S, SUITES, Outcomes, Result
from harness import mpis
from harness.mpis import ROOT

FOLDER = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "conformance.md"


@dataclass
class Part:
    """One module of mpi4py's tests, or another suite as a whole."""

    ok: int = 0
    skipped: int = 0
    not_ok: Outcomes = field(default_factory=dict)


Suite = dict[str, Part]


@dataclass
class Record:
    """All results of one mode."""

    path: Path
    versions: dict[str, str] = field(default_factory=dict)
    suites: dict[str, Suite] = field(default_factory=dict)

    @classmethod
    def load(cls, mode: str) -> Record:
        path = FOLDER / f"{mode}.json"
        if not path.is_file():
            return cls(path)
        content = json.loads(path.read_text())
        suites = {
            key: {name: Part(ok, skipped, not_ok) for name, (ok, skipped, not_ok) in parts.items()}
            for key, parts in content["suites"].items()
        }
        return cls(path, content["versions"], suites)

    def save(self) -> None:
        lines = []
        for key, parts in sorted(self.suites.items()):
            inner = ",\n".join(
                f"   {json.dumps(name)}: {json.dumps([part.ok, part.skipped, part.not_ok])}"
                for name, part in sorted(parts.items())
            )
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        versions = json.dumps(self.versions, indent=2, sort_keys=True).replace("\n", "\n ")
        self.path.write_text(f'{{\n "versions": {versions},\n "suites": {{\n' + ",\n".join(lines) + "\n }\n}\n")

    def not_ok(self, key: str) -> Outcomes:
        return {name: outcome for part in self.suites.get(key, {}).values() for name, outcome in part.not_ok.items()}

    def take(self, result: Result, again: bool = False) -> None:
        """Puts the result in; with `again`, what failed before stays: a test that fails now and then is not sound."""
        parts: Suite = {}
        for name, outcome in sorted(result.outcomes.items()):
            part = parts.setdefault(part_of(result.suite, name), Part())
            if outcome == "ok":
                part.ok += 1
            elif outcome == "skipped":
                part.skipped += 1
            else:
                part.not_ok[name] = outcome
        known = self.suites.setdefault(result.key, {})
        for name, part in parts.items():
            if again and name in known:
                for test, outcome in known[name].not_ok.items():
                    if test not in part.not_ok and test in result.outcomes:
                        part.ok -= 1
                        part.not_ok[test] = f"{outcome.removesuffix(SOMETIMES)}{SOMETIMES}"
            known[name] = part


@contextlib.contextmanager
def records(write: bool) -> Iterator[tuple[Record, Record]]:
    """What is recorded plain and sealed, to be changed; two runs beside each other may."""
    with (FOLDER / "record.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        plain, sealed = Record.load("plain"), Record.load("sealed")
        yield plain, sealed
        if write:
            plain.save()
            sealed.save()
            PAGE.write_text(page(plain, sealed))


SOMETIMES = " at times"
ALL = [*SUITES, *FILE_SUITES]

CAUSES = [
    "- MPICH, `testDistgraphcomm`: `MPI_Dist_graph_create` probes any source and then receives from any source, and",
    "  may get another message than it probed when one of them is from the process itself, which MPICH keeps apart",
    "  from libfabric's. Degrees are wrong or it hangs plain in 2 of 5 runs. Sealed it passed 19 of 19, since a probe",
    "  is answered from what had arrived when it was asked.",
    "- Open MPI 5: matched probes fail over libfabric's tcp, and mpi4py's receives of objects use them. Gambeson does",
    "  its own matching, so they work sealed.",
    "- Windows of Open MPI 5 are refused sealed, with the remedy: their data would pass libfabric by. A module of",
    "  mpi4py's tests that makes a window when it is loaded is refused whole. On Open MPI 4 the suites follow the",
    "  remedy and start MPI with MPI_THREAD_SERIALIZED; it then has no windows in shared memory.",
    "- Open MPI 4, `test_util_sync`: mutexes and conditions in windows hang under osc/pt2pt, the one-sided component",
    "  that stays on libfabric. It is the component's doing: plain over tcp with `OMPI_MCA_osc=pt2pt OMPI_MCA_pml=cm`",
    "  the first of them hangs as well. Plain runs here leave Open MPI its choice, another component past libfabric.",
    "- hdf5 `calloc`, `fltread`, `cmpdsetr`, `atomicity` and `t_filters_parallel` also make or open their file by",
    "  HDF5's serial driver, and `t_pread` puts a block before it by plain writes. That does not go through MPI: what",
    "  is made so is in clear, which the policy refuses, and what is sealed can't be read so. The remedy is",
    "  `gambeson file seal`, or the parallel driver on one rank. A test counts as refused if it prints Gambeson's",
    "  sentence; where it keeps to itself why it failed, if it has stopped at the check that opens that file, and the",
    "  file is whole.",
    "- h5py, `test_append_permissions`: root may write to the file that is read-only.",
    "- mpi4py-files on Intel MPI: its ranks wait without letting others run. Opening and closing a sealed file takes",
    "  more messages than a plain one, and where fewer cores are free than there are ranks each of them takes a time",
    "  slice: there test_io is slow plain, and several times slower sealed. It does not hang.",
]


def part_of(suite: str, test: str) -> str:
    return re.split(r"[. ]", test)[0] if suite in ("mpi4py", *FILE_SUITES) else suite


@dataclass(frozen=True)
class Comparison:
    ran: int
    sound: int
    """Tests that are ok plain."""
    kept: int
    lost: Outcomes
    gained: list[str]
    refused: Outcomes
    refused_count: int
    """Tests, where `refused` may name a module's rest."""
    missing: dict[str, int]
    """Modules in which fewer tests gave a result sealed than plain, and by how many."""
    skipped: dict[str, int]
    """Modules that skip more tests sealed than plain, because the MPI offers less there, and how many more."""


def compare(plain: Suite, sealed: Suite) -> Comparison:
    """Of the parts that ran in both modes."""
    both = [name for name in plain if name in sealed]
    before = {test: outcome for name in both for test, outcome in plain[name].not_ok.items()}
    after = {test: outcome for name in both for test, outcome in sealed[name].not_ok.items()}
    new = {test: outcome for test, outcome in after.items() if test not in before}
    refused = {test: outcome for test, outcome in new.items() if outcome == "refused"}
    lost = {test: outcome for test, outcome in new.items() if outcome != "refused"}
    missing = {name: total(plain[name]) - total(sealed[name]) for name in both if f"{name}{REST}" not in refused}
    windows = [name for name in both if f"{name}{REST}" in refused]
    refused_count = sum(max(0, plain[name].ok - sealed[name].ok) for name in windows)
    refused_count += sum(test.split(".")[0] not in windows for test in refused if not test.endswith(REST))
    missing = {name: short for name, short in missing.items() if short > 0}
    skipped = {name: sealed[name].skipped - plain[name].skipped for name in both}
    skipped = {name: more for name, more in skipped.items() if more > 0}
    sound = sum(plain[name].ok for name in both)
    return Comparison(
        ran=sum(total(plain[name]) for name in both),
        sound=sound,
        kept=sound - len(lost) - sum(missing.values()) - sum(skipped.values()) - refused_count,
        lost=lost,
        refused=refused,
        refused_count=refused_count,
        gained=[test for test in before if test not in after and f"{test.split('.')[0]}{REST}" not in refused],
        missing=missing,
        skipped=skipped,
    )


def total(part: Part) -> int:
    return part.ok + part.skipped + len(part.not_ok)


def shown(tests: Outcomes | Iterable[str]) -> str:
    """Tests by name: module, classes and tests with the same outcome together."""
    outcomes = tests if isinstance(tests, dict) else dict.fromkeys(tests, "")
    classes: dict[tuple[str, str, str], list[str]] = {}
    for name, outcome in sorted(outcomes.items()):
        module, _, test = name.rpartition(".")
        folder, _, class_ = module.rpartition(".")
        classes.setdefault((folder, outcome, test), []).append(class_)
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (folder, outcome, test), among in sorted(classes.items()):
        groups.setdefault((folder, outcome, tuple(among)), []).append(f"`{test}`")
    words = []
    for (folder, outcome, in_classes), names in groups.items():
        where = f"{folder} {', '.join(in_classes)}: " if folder else ""
        words.append(where + ", ".join(names) + (f" ({outcome})" if outcome else ""))
    return "; ".join(words) or "none"


def page(plain: Record, sealed: Record) -> str:
    lines = [
        "# Conformance: other projects' MPI test suites, plain and sealed",
        "",
        "Written by `make conformance` (`tests/conformance/run.py --write`). Every suite runs on the same MPI over",
        "libfabric's tcp without Gambeson, and under `gambeson run --intra-host sealed`, where every message passes",
        "the provider. *Kept* are the tests that are ok in both. What fails without Gambeson is named; it is left out",
        f"sealed when it hangs or takes the job with it. A hang is a test without progress for {STALL_S:.0f} s.",
        "mpi4py-files, hdf5, h5py and pnetcdf are about MPI-IO: sealed, a rule has every file sealed that the programs",
        "open with MPI, in blocks of 4 KiB. A job of theirs has failed if no sealed file of it stands in the key",
        "store's book, and a test of pnetcdf also if its validator finds fault with what `gambeson file open` makes of",
        "its files.",
        "",
        "| suite | MPI | ranks | tests | skipped by the suite | ok plain | kept sealed | lost sealed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = sorted((key for key in plain.suites if key in sealed.suites), key=order)
    results = {key: compare(plain.suites[key], sealed.suites[key]) for key in keys}
    for key, result in results.items():
        skipped = sum(part.skipped for name, part in plain.suites[key].items() if name in sealed.suites[key])
        lost = str(len(result.lost) + sum(result.missing.values()))
        if result.refused:
            lost += f", {result.refused_count} refused"
        if result.skipped:
            lost += f", {sum(result.skipped.values())} skipped"
        cells = [*key.split(" "), result.ran, skipped, result.sound, result.kept, lost]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if gaps := not_run(plain, sealed):
        lines += ["", "Not run yet, and not counted above:", "", *gaps]

    def section(title: str, entries: dict[str, str]) -> None:
        lines.extend(["", f"## {title}", ""])
        by_text: dict[str, list[str]] = {}
        for key, text in entries.items():
            by_text.setdefault(text, []).append(key)
        for text, keys in by_text.items():
            lines.append(f"- {', '.join(places(keys))}:")
            lines.extend(f"  - {line}" for line in text.split("; "))
        if not entries:
            lines.append("None.")

    section(
        "Lost sealed",
        {
            key: shown({**result.lost, **{name: f"{short} without result" for name, short in result.missing.items()}})
            for key, result in results.items()
            if result.lost or result.missing
        },
    )
    if any(result.refused for result in results.values()):
        section(
            "Refused sealed, with the remedy",
            {key: shown(list(result.refused)) for key, result in results.items() if result.refused},
        )
    section(
        "Skipped by the suite sealed, but not plain",
        {
            key: shown({name: f"{more} tests" for name, more in result.skipped.items()})
            for key, result in results.items()
            if result.skipped
        },
    )
    section(
        "Fails by itself, without Gambeson",
        {key: shown(plain.not_ok(key)) for key in sorted(plain.suites, key=order) if plain.not_ok(key)},
    )
    section("Fails plain, ok sealed", {key: shown(result.gained) for key, result in results.items() if result.gained})
    lines += ["", "## Known causes", "", *CAUSES]
    lines += ["", "## Versions and options", ""]
    lines += [f"- {name}: {version}" for name, version in sorted(plain.versions.items())]
    lines += [f"- {MPI4PY}: all modules of its own tests, from its source distribution, one job per module."]
    for imb in IMB:
        environment = "".join(f"{name}={value} " for name, value in imb.environment)
        npmin = " -npmin RANKS" if imb.takes_npmin else ""
        lines.append(f"- `{environment}{imb.name} {' '.join(imb.arguments)}{npmin}`")
    lines.append(
        "- operations: `tests/conformance/operations.py`, the operations of the Intel MPI Benchmarks in fixed loops,"
        " with every byte checked; the benchmarks' own binaries need `libmpi.so.12`, which MPICH and Intel MPI have."
    )
    lines.append(
        f"- mpi4py-files: {' and '.join(MPI4PY_MODULES)} of the same tests. hdf5: {', '.join(HDF5_PROGRAMS)} of"
        " HDF5's parallel tests, each test of testphdf5 as a job, from the distribution's source of the library that"
        " they are linked with (1.10.8 on Debian 12)."
    )
    lines.append(
        f"- {H5PY}: all of its tests on every rank, with pytest's plugin for MPI, as its developers run them"
        " (`test-mpi` in its tox.ini), built from its source distribution for the same HDF5. Those of"
        " `test_file.TestMPI` open files with MPI; the others show that nothing changes for files that go past it."
    )
    folders = ", ".join(f"test/{folder}" for folder in FOLDERS)
    lines.append(
        f"- pnetcdf: the programs in C of {folders} in the distribution's source (1.12.3 on Debian 12), with a shared"
        " libpnetcdf; those of nc_test on one rank, as `make check` runs them."
    )
    return "\n".join(lines) + "\n"


def not_run(plain: Record, sealed: Record) -> list[str]:
    """What is missing in the table, a line each."""
    modules = sorted({part for key, parts in plain.suites.items() if key.startswith("mpi4py") for part in parts})
    lines = []
    for mpi in mpis.ALL:
        for ranks in (2, 4):
            for suite in ALL:
                if suite.startswith("IMB") and mpi not in IMB_MPIS:
                    continue
                key = f"{suite} {mpi} {ranks}"
                if ranks not in FILE_SUITES.get(suite, (ranks,)):
                    continue
                wanted = modules if suite == "mpi4py" else parts_of(suite) if suite in FILE_SUITES else [suite]
                both = set(plain.suites.get(key, {})) & set(sealed.suites.get(key, {}))
                if absent := [name for name in wanted if name not in both]:
                    which = "" if len(absent) == len(wanted) else f": {', '.join(absent)}"
                    lines.append(f"- {places([key])[0]}{which}")
    return lines


def order(key: str) -> tuple[int, int, int]:
    suite, mpi, ranks = key.split(" ")
    return ALL.index(suite), mpis.ALL.index(mpi), int(ranks)


def places(keys: list[str]) -> list[str]:
    """Keys with their ranks together: `mpi4py mpich on 2 and 4 ranks`."""
    ranks: dict[str, list[str]] = {}
    for key in keys:
        where, _, count = key.rpartition(" ")
        ranks.setdefault(where, []).append(count)
    return [f"{where} on {' and '.join(counts)} ranks" for where, counts in ranks.items()]
