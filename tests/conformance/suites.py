"""The foreign test suites: how each runs on one MPI, plain or sealed, and the outcome of each of its tests by name.

An outcome is `ok`, `skipped`, `failed`, `error`, `hang` (no progress for a while), `died` (the job ended under it) or
`refused` (Gambeson stopped the job on purpose).
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness.jobs import Job, Runner
from harness.mpis import ROOT, Mpi, venv

HERE = Path(__file__).resolve().parent
MPI4PY = "mpi4py-4.1.2"
STALL_S = 30.0

Outcomes = dict[str, str]
SEVERITY = ["ok", "skipped", "failed", "error", "died", "hang"]


@dataclass
class Result:
    """One suite on one MPI with one number of ranks in one mode."""

    suite: str
    mpi: str
    ranks: int
    sealed: bool
    outcomes: Outcomes = field(default_factory=dict)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.suite} {self.mpi} {self.ranks}"

    def names(self, *outcomes: str) -> list[str]:
        return sorted(name for name, outcome in self.outcomes.items() if outcome in outcomes)

    @property
    def not_ok(self) -> dict[str, str]:
        return {
            name: outcome
            for name, outcome in sorted(self.outcomes.items())
            if outcome not in ("ok", "skipped", "refused")
        }


def stalled(folder: Path, limit_s: float) -> Callable[[], bool]:
    """Whether no file in `folder` has grown for `limit_s`."""
    state = {"size": -1, "since": time.monotonic()}

    def check() -> bool:
        size = sum(path.stat().st_size for path in folder.iterdir())
        if size != state["size"]:
            state["size"], state["since"] = size, time.monotonic()
        return time.monotonic() - state["since"] > limit_s

    return check


# --- mpi4py's own tests


def mpi4py_tests() -> Path:
    """The folder of mpi4py's tests, from its source distribution, which is fetched once."""
    folder = ROOT / "build" / "conformance" / MPI4PY
    if not (folder / "test" / "main.py").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        pip = [str(venv("tools") / "bin" / "python"), "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        wanted = ["--no-deps", "--no-binary", "mpi4py", "-d", str(folder.parent), MPI4PY.replace("-", "==")]
        subprocess.run([*pip, *wanted], check=True)
        with tarfile.open(folder.parent / f"{MPI4PY}.tar.gz") as archive:
            archive.extractall(folder.parent, filter="data")
    return folder / "test"


def mpi4py_modules() -> list[str]:
    return sorted(path.stem for path in mpi4py_tests().glob("test_*.py"))


def merge(folder: Path) -> tuple[Outcomes, list[str]]:
    """The worst outcome over the ranks of each test, and the tests that some rank began and did not end."""
    outcomes: Outcomes = {}
    open_tests: list[str] = []
    for path in sorted(folder.glob("rank-*")):
        running = ""
        for line in path.read_text().splitlines():
            word, _, name = line.partition(" ")
            if word == "begin":
                running = name
                outcomes.setdefault(name, "ok")
            elif word == "end":
                running = ""
            elif SEVERITY.index(word) > SEVERITY.index(outcomes.get(name, "ok")):
                outcomes[name] = word
        if running:
            open_tests.append(running)
    return outcomes, open_tests


def run_mpi4py(runner: Runner, mpi: Mpi, ranks: int, modules: Iterable[str], exclude: Iterable[str] = ()) -> Result:
    """One job per module. A test that hangs or kills the job is recorded, left out, and its module run again.

    `exclude` names tests that hang by themselves; they count as `hang` without the wait.
    """
    result = Result("mpi4py", mpi.name, ranks, not runner.plain)
    tests = mpi4py_tests()
    started = time.monotonic()
    excluded = set(exclude)
    for module in modules:
        bad = {name: "hang" for name in excluded if name.startswith(f"{module}.")}
        for _ in range(12):
            with tempfile.TemporaryDirectory() as out:
                folder = Path(out)
                words: list[str | Path] = [HERE / "mpi4py_driver.py", tests, folder, "-i", rf"^{module}\.py$"]
                for name in bad:
                    words += ["-x", f"*{name.removeprefix(module)}"]
                job = runner.run(mpi, words, n=ranks, timeout=600, stalled=stalled(folder, STALL_S))
                found, running = merge(folder)
            ended = not job.timed_out and (job.status == 0 or not running)
            if not ended and running:
                outcome = "hang" if job.timed_out else "died"
                # A rank that waits in a later test is the victim of the first that did not end.
                culprit = min(running, key=list(found).index)
                bad[culprit] = outcome
                note = f"{mpi.name}, {ranks} ranks: {culprit}: {outcome}"
                result.notes.append(note + ("" if job.timed_out else f" with status {job.status}: {last_words(job)}"))
                if len(bad) >= 12:
                    break
                continue
            if job.status != 0 and not any(found[name] in ("failed", "error") for name in found):
                bad[f"{module} (job)"] = "hang" if job.timed_out else "died"
                result.notes.append(f"{mpi.name}, {ranks} ranks: {module}: status {job.status}: {last_words(job)}")
            break
        result.outcomes |= found | bad
    result.seconds = time.monotonic() - started
    return result


def last_words(job: Job) -> str:
    """The line of the output that says most about why the job ended."""
    lines = [line.strip() for line in job.output.splitlines() if line.strip()]
    for pattern in (r"^gambeson: ", r"Error|error|signal|Fatal|failed"):
        for line in lines:
            if re.search(pattern, line):
                return line[:300]
    return lines[-1][:300] if lines else "no output"


# --- the Intel MPI Benchmarks


@dataclass(frozen=True)
class Imb:
    """A benchmark program of the Intel wheel, with settings that make it a test: few repetitions, all sizes."""

    name: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


IMB = [
    Imb("IMB-MPI1", ("-iter", "6", "-time", "4", "-msglog", "0:20", "-mem", "1")),
    Imb("IMB-P2P", ("-iter", "6,1", "-msglog", "0:20")),
    Imb("IMB-NBC", ("-iter", "4", "-time", "4", "-msglog", "0:18", "-mem", "1")),
    Imb("IMB-RMA", ("-iter", "6", "-time", "4", "-msglog", "0:18", "-mem", "1")),
    Imb(
        "IMB-MT",
        ("-thread_level", "multiple", "-repeat", "4", "-warmup", "1", "-check", "true", "-count", "1,4,1000,100000"),
        (("OMP_NUM_THREADS", "4"),),
    ),
]
IMB_ALL = (("IMB-MPI1", "Uniband,Biband,PingPongAnySource,PingPingAnySource"),)


def parse_imb(output: str) -> tuple[Outcomes, str]:
    """Each benchmark that printed rows to its end is ok; the last one begun may not be."""
    outcomes: Outcomes = {}
    last = ""
    for block in re.split(r"^# Benchmarking ", output, flags=re.M)[1:]:
        title = block.split("\n", 1)[0].strip()
        processes = re.search(r"#processes = (\d+)", block)
        name = f"{title} on {processes[1]}" if processes else title
        rows = re.findall(r"^ *\d[\d. \t]*$", block, re.M)
        wrong = re.search(r"(?i)time-out|data mismatch|check failed|\berrors?\b|\bFAIL", block)
        last = name
        if outcomes.get(name, "ok") == "ok":
            outcomes[name] = "failed" if wrong or not rows else "ok"
    return outcomes, last


def run_imb(runner: Runner, mpi: Mpi, ranks: int, imb: Imb, timeout: float = 400) -> Result:
    """The benchmark under Intel MPI or MPICH: both have the libmpi.so.12 it asks for."""
    result = Result(imb.name, mpi.name, ranks, not runner.plain)
    program = venv("impi") / "bin" / imb.name
    library = [str(mpi.bin.parent / "lib"), str(venv("impi") / "lib" / "openmp")]
    openmp = next(venv("impi").rglob("libiomp5.so"), None)
    if openmp:
        library[1] = str(openmp.parent) if openmp.parent != venv("impi") / "lib" else library[1]
    if mpi.name == "mpich" and openmp and openmp.parent == venv("impi") / "lib":
        # That folder holds Intel's libmpi.so.12 too: the OpenMP library alone is wanted from it.
        alone = ROOT / "build" / "conformance" / "openmp"
        alone.mkdir(parents=True, exist_ok=True)
        link = alone / openmp.name
        if not link.exists():
            link.symlink_to(openmp)
        library[1] = str(alone)
    env = {"LD_LIBRARY_PATH": ":".join(library), **dict(imb.environment)}
    arguments = list(imb.arguments)
    if imb.name != "IMB-P2P" and imb.name != "IMB-MT":
        arguments += ["-npmin", str(ranks)]
    job = runner.run(mpi, [program, *arguments], n=ranks, env=env, timeout=timeout)
    result.outcomes, last = parse_imb(job.stdout)
    result.seconds = job.seconds
    if job.status != 0 or job.timed_out or not result.outcomes:
        outcome = "hang" if job.timed_out else "died"
        result.outcomes[last or "start"] = outcome
        result.notes.append(f"{imb.name}, {mpi.name}, {ranks} ranks: {last or 'start'}: {outcome}: {last_words(job)}")
    return result


# --- the same operations for MPIs that IMB's binaries do not fit


WINDOW_OPERATIONS = (
    *(f"{who}_{what}" for what in ("put", "get") for who in ("Unidir", "Bidir", "Exchange")),
    *("One_put_all", "All_put_all", "One_get_all", "All_get_all", "Truly_passive_put"),
    *("Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap"),
)


def run_operations(runner: Runner, mpi: Mpi, ranks: int, timeout: float = 400) -> Result:
    """An operation that hangs or kills the job is recorded, left out, and the rest run again."""
    result = Result("operations", mpi.name, ranks, not runner.plain)
    for _ in range(8):
        skip = ",".join([*result.outcomes])
        job = runner.run(mpi, [HERE / "operations.py", skip], n=ranks, timeout=timeout)
        result.seconds += job.seconds
        begun = ""
        for line in job.stdout.splitlines():
            word, _, name = line.partition(" ")
            if word == "begin":
                begun = name
            elif word == "ok":
                result.outcomes[name] = word
        if job.status == 0 and not job.timed_out:
            break
        if job.status == 70 and "makes a window" in job.stderr:
            # Refused with the remedy, as it should be: no window operation can be tried on this MPI.
            result.outcomes |= dict.fromkeys(WINDOW_OPERATIONS, "refused")
            continue
        outcome = "hang" if job.timed_out else "died"
        result.outcomes[begun or "start"] = outcome
        result.notes.append(f"operations, {mpi.name}, {ranks} ranks: {begun or 'start'}: {outcome}: {last_words(job)}")
        if not begun:
            break
    return result
