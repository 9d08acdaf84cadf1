"""The foreign test suites: how each runs on one MPI, plain or sealed, and the outcome of each of its tests by name.

An outcome is `ok`, `skipped`, `failed`, `error`, `hang` (no progress for a while), `died` (the job ended under it) or
`refused` (Gambeson stopped the job on purpose). A test that hangs or dies is left out and the rest run again, so that
one of them does not hide what comes after it.
"""

from __future__ import annotations

import contextlib
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
STALL_S = 40.0
"""Time without progress that counts as a hang: more than `gap_timeout`, so that Gambeson may say why first."""
ATTEMPTS = 24

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
    version: str = ""
    """Of the suite, where it prints one."""

    @property
    def key(self) -> str:
        return f"{self.suite} {self.mpi} {self.ranks}"

    def note(self, name: str, outcome: str, job: Job) -> None:
        status = "" if job.timed_out else f" with status {job.status}"
        self.notes.append(f"{self.key}: {name}: {outcome}{status}: {last_words(job)}")

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


def run_mpi4py(runner: Runner, mpi: Mpi, ranks: int, modules: Iterable[str], known: Outcomes | None = None) -> Result:
    """One job per module. `known` names tests that hang or kill the job by themselves: they are left out at once."""
    result = Result("mpi4py", mpi.name, ranks, not runner.plain)
    tests = mpi4py_tests()
    started = time.monotonic()
    for module in modules:
        bad = {name: outcome for name, outcome in stoppers(known).items() if name.startswith(f"{module}.")}
        env: dict[str, str] = {}
        for _ in range(ATTEMPTS):
            with tempfile.TemporaryDirectory() as out:
                folder = Path(out)
                words: list[str | Path] = [HERE / "mpi4py_driver.py", tests, folder, "-i", rf"^{module}\.py$"]
                for name in bad:
                    patterns = ABOUT_WINDOWS if name.endswith(REST) else [f"*{name.removeprefix(module)}"]
                    words += [word for pattern in patterns for word in ("-x", pattern)]
                job = runner.run(mpi, words, n=ranks, env=env, timeout=600, stalled=stalled(folder, STALL_S))
                found, running = merge(folder)
            if window_refused(job) and REMEDY in job.stderr and not env:
                env = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
                continue
            if window_refused(job):
                # As it should be. Classes that are about windows are left out, then single tests that make one.
                if f"{module}{REST}" not in bad:
                    bad[f"{module}{REST}"] = "refused"
                    continue
                if not running:
                    break
                bad[min(running, key=list(found).index)] = "refused"
                continue
            outcome = "hang" if job.timed_out else "died"
            ended = not job.timed_out and (job.status == 0 or not running)
            if not ended and running:
                # A rank that waits in a later test is the victim of the first that did not end.
                culprit = min(running, key=list(found).index)
                bad[culprit] = outcome
                result.note(culprit, outcome, job)
                continue
            if job.status != 0 and not any(found[name] in ("failed", "error") for name in found):
                bad[f"{module} (job)"] = outcome
                result.note(f"{module} (job)", outcome, job)
            break
        if f"{module}{REST}" in bad:
            found = {name: outcome for name, outcome in found.items() if name not in running}
        result.outcomes |= found | bad
    result.seconds = time.monotonic() - started
    return result


REST = " (windows)"
ABOUT_WINDOWS = ["*Win*", "*RMA*"]
REMEDY = "Start MPI with at most MPI_THREAD_SERIALIZED"
"""What Gambeson tells programs with windows on Open MPI 4; the suites follow it."""


def window_refused(job: Job) -> bool:
    """Whether Gambeson ended the job because the MPI's windows would pass it by."""
    return job.status == 70 and "makes a window" in job.stderr


def stoppers(known: Outcomes | None) -> Outcomes:
    """Of tests that fail by themselves, those that take the job with them."""
    return {name: outcome for name, outcome in (known or {}).items() if outcome in ("hang", "died")}


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
    takes_npmin: bool = True


# Benchmarks that IMB-MPI1 runs only when they are asked for.
IMB_MPI1_MORE = "Uniband,Biband,PingPongAnySource,PingPingAnySource"
IMB = [
    Imb(
        "IMB-MPI1",
        ("-iter", "6", "-time", "4", "-msglog", "0:20", "-mem", "1", "-include", IMB_MPI1_MORE),
    ),
    Imb("IMB-P2P", ("-iter", "6,1", "-msglog", "0:20"), takes_npmin=False),
    Imb("IMB-NBC", ("-iter", "4", "-time", "4", "-msglog", "0:18", "-mem", "1")),
    Imb("IMB-RMA", ("-iter", "6", "-time", "4", "-msglog", "0:18", "-mem", "1")),
    Imb(
        "IMB-MT",
        ("-thread_level", "multiple", "-repeat", "4", "-warmup", "1", "-check", "true", "-count", "1,4,1000,100000"),
        (("OMP_NUM_THREADS", "4"),),
        takes_npmin=False,
    ),
]
IMB_MPIS = ("mpich", "intel")
SUITES = ["mpi4py", "operations", *(imb.name for imb in IMB)]


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


def run_imb(runner: Runner, mpi: Mpi, ranks: int, imb: Imb, known: Outcomes | None = None) -> Result:
    """The benchmark under Intel MPI or MPICH: both have the libmpi.so.12 it asks for."""
    result = Result(imb.name, mpi.name, ranks, not runner.plain)
    program = venv("impi") / "bin" / imb.name
    env = {"LD_LIBRARY_PATH": imb_libraries(mpi), **dict(imb.environment)}
    arguments = [*imb.arguments, *(["-npmin", str(ranks)] if imb.takes_npmin else [])]
    bad = stoppers(known)
    for _ in range(ATTEMPTS):
        left_out = ["-exclude", ",".join(name.split(" ")[0] for name in bad)] if bad else []
        with tempfile.TemporaryDirectory() as out:
            # Into a file, whose growth tells progress.
            output = Path(out) / "output"
            job = runner.run(
                mpi,
                [program, *arguments, *left_out],
                n=ranks,
                env=env,
                timeout=500,
                prefix=["sh", "-c", 'exec "$@" >"$0"', output.as_posix()],
                stalled=stalled(Path(out), STALL_S),
            )
            printed = output.read_text(errors="replace")
        found, last = parse_imb(printed)
        if title := re.search(r"Intel\(R\) MPI Benchmarks ([\d.]+)", printed):
            result.version = title[1]
        result.seconds += job.seconds
        if job.status == 0 and not job.timed_out and found:
            break
        bad[last or "start"] = "hang" if job.timed_out else "died"
        result.note(last or "start", bad[last or "start"], job)
        if not last:
            break
    result.outcomes = found | bad
    return result


def imb_libraries(mpi: Mpi) -> str:
    """LD_LIBRARY_PATH: this MPI's libmpi.so.12, and the OpenMP library that IMB-MT asks for."""
    openmp = next(venv("impi").rglob("libiomp5.so"))
    # Intel's libmpi.so.12 lies in the same folder: the OpenMP library alone is wanted from it.
    alone = ROOT / "build" / "conformance" / "openmp"
    alone.mkdir(parents=True, exist_ok=True)
    link = alone / openmp.name
    if not link.exists():
        # One may be there that leads to a checkout that is gone, or soon from a run beside this one.
        link.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            link.symlink_to(openmp)
    return f"{mpi.bin.parent / 'lib'}:{alone}"


# --- the same operations for MPIs that IMB's binaries do not fit


WINDOW_OPERATIONS = (
    *(f"{who}_{what}" for what in ("put", "get") for who in ("Unidir", "Bidir", "Exchange")),
    *("One_put_all", "All_put_all", "One_get_all", "All_get_all", "Truly_passive_put"),
    *("Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap"),
)


def run_operations(runner: Runner, mpi: Mpi, ranks: int, known: Outcomes | None = None) -> Result:
    result = Result("operations", mpi.name, ranks, not runner.plain)
    bad = stoppers(known)
    done: Outcomes = {}
    level = "multiple"
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as out:
            folder = Path(out)
            job = runner.run(
                mpi,
                [HERE / "operations.py", folder, level, ",".join([*bad, *done])],
                n=ranks,
                timeout=500,
                stalled=stalled(folder, STALL_S),
            )
            found, running = merge(folder)
        result.seconds += job.seconds
        done |= {name: outcome for name, outcome in found.items() if name not in running}
        if job.status == 0 and not job.timed_out:
            if level == "multiple":
                break
            level = "multiple"
        elif window_refused(job) and REMEDY in job.stderr and level == "multiple":
            level = "serialized"
        elif window_refused(job):
            bad |= dict.fromkeys(WINDOW_OPERATIONS, "refused")
        else:
            culprit = running[0] if running else "start"
            bad[culprit] = "hang" if job.timed_out else "died"
            result.note(culprit, bad[culprit], job)
            if not running:
                break
    result.outcomes = done | bad
    return result
