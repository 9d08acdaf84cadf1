"""gambeson.sim from an installed wheel: results and sentences are those of the command line, on any executor."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness.mpis import ROOT
from harness.python import Package
from harness.sim import SMALL, Sim

WRITTEN = ("results.csv", "results.parquet", "report.html", "mean-latency.png")


class Room(Sim):
    """A folder with the experiments, where the command line and Python are called."""

    def __init__(self, gambeson: Path, package: Package, folder: Path) -> None:
        super().__init__(gambeson, folder)
        self.package = package

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def python(self, program: str) -> Any:
        return self.package.run(program, self.folder)

    def same(self, one: str, other: str) -> bool:
        """Whether two folders of sweeps hold the same, byte by byte."""
        read = [[(self.folder / folder / name).read_bytes() for name in WRITTEN] for folder in (one, other)]
        return read[0] == read[1]


@pytest.fixture
def room(gambeson: Path, package: Package, tmp_path: Path) -> Room:
    made = Room(gambeson, package, tmp_path)
    made.furnish()
    return made


def test_outcomes_are_those_of_the_command_line(room: Room) -> None:
    """From a file, a text, a dict and an earlier outcome; of synthetic traffic, of a replay, and of floods."""
    outcomes = room.python("""
import json
from pathlib import Path
from gambeson import sim

outcomes = {}
for name in ("small", "key-cache", "flood"):
    outcome = sim.load(f"{name}.toml").run()
    outcomes[name] = json.loads(outcome.json)
    assert sim.load(Path(f"{name}.toml").read_text()).run() == outcome
    assert sim.load(outcome.experiment).run() == outcome
    assert sim.Outcome.of(outcome.json) == outcome
small = {"topology": {"kind": "mesh", "dims": (2, 2)}, "measure": {"warmup_us": 5, "for_us": 50}}
small |= {"traffic": [{"load": 0.2}]}
assert sim.load(small).run() == sim.load("small.toml").run()
changed = sim.load("small.toml").with_values({"traffic.0.load": 0.4, "security.level": "queue-pair", "seed": 9})
assert (changed.seed, changed.values["traffic"][0]["load"]) == (9, 0.4)
outcomes["changed"] = json.loads(changed.run().json)
print(json.dumps(outcomes))
""")
    sets = ["--set", "traffic.0.load=0.4", "--set", "security.level=queue-pair", "--set", "seed=9"]
    for name, arguments in {"small": [], "key-cache": [], "flood": [], "changed": sets}.items():
        file = "small.toml" if name == "changed" else f"{name}.toml"
        room.run("run", file, *arguments, "--json", "outcome.json")
        assert {**outcomes[name], "seconds": 0} == {**room.json("outcome.json"), "seconds": 0}, name


def test_pyarrow_pandas_and_polars_take_the_table(room: Room) -> None:
    room.python("""
import pandas, polars, pyarrow, pyarrow.parquet
from gambeson import sim

parameters = {"traffic.0.load": [0.1, 0.2], "security.level": ["none", "queue-pair"]}
results = sim.sweep("small.toml", parameters, repeat=2, resume="out")
table = results.table()
assert len(results) == len(table) == 8 and results.held == 0
arrow = pyarrow.table(table)
assert arrow.column_names == table.columns
assert arrow.to_pydict() == table.to_dict()
assert arrow.equals(pyarrow.parquet.read_table("out/results.parquet").replace_schema_metadata())
frame = polars.DataFrame(table)
assert frame.equals(polars.read_parquet("out/results.parquet"))
assert frame["hit_rate"].null_count() == 8 - sum(outcome.lookups > 0 for outcome in results)
latencies = [outcome.flows[0].latency for outcome in results]
assert frame["mean_ns"].to_list() == [latency.mean_ns if latency.count else None for latency in latencies]
pandas.testing.assert_frame_equal(pandas.DataFrame.from_arrow(table), pandas.read_parquet("out/results.parquet"))
one = results[3].table()
assert polars.DataFrame(one).equals(frame[3].drop("traffic.0.load", "security.level"))
assert sim.sweep("small.toml", {"seed": [5]}, progress=False)[0].table().to_dict()["seed"] == [5]
""")


@pytest.mark.parametrize("first", ["command line", "python"])
def test_either_goes_on_with_a_sweep_of_the_other(room: Room, first: str) -> None:
    over = ["--over", "traffic.0.load=0.1,0.2,0.3", "--over", "security.level=none,queue-pair"]
    room.run("sweep", "small.toml", *over, "--repeat", "2", "--out", "whole")
    part = ["sweep", "small.toml", "--over", "traffic.0.load=0.2", *over[2:], "--repeat", "2", "--out", "part"]
    program = """
import json
from gambeson import sim
parameters = {{"traffic.0.load": {loads}, "security.level": ["none", "queue-pair"]}}
told = []
results = sim.sweep("small.toml", parameters, repeat=2, resume="part", progress=lambda *far: told.append(far))
assert told == [(done, len(results)) for done in range(results.held, len(results) + 1)], told
print(results.held)
"""
    if first == "command line":
        room.run(*part)
        assert room.python(program.format(loads=[0.1, 0.2, 0.3])) == 4
    else:
        assert room.python(program.format(loads=[0.2])) == 0
        done = room.run("sweep", "small.toml", *over, "--repeat", "2", "--out", "part")
        assert "12 runs, 4 of them held already" in done
    assert room.same("whole", "part")


LONG = """
import signal
from gambeson import sim
# A shell starts what it runs in the background with interrupts ignored, and Python leaves that as it is.
signal.signal(signal.SIGINT, signal.default_int_handler)
experiment = sim.load("mesh.toml").with_values({"measure.for_us": 3_600e6})
print("begun", flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "experiment.run()",
        "sim.sweep(experiment, {'seed': [1, 2, 3]})",
        # Some millions of messages.
        "sim.advise('long.goal', machine='key-cache.toml')",
    ],
)
def test_an_interrupt_ends_whatever_is_going_on(room: Room, call: str) -> None:
    """Python says KeyboardInterrupt, and runs that would take hours end."""
    if "long.goal" in call:
        rank = "".join(f"s{at}: send 64b to {{peer}}\nr{at}: recv 64b from {{peer}}\n" for at in range(200_000))
        text = "num_ranks 2\n" + "".join(f"rank {at} {{\n{rank.replace('{peer}', str(1 - at))}}}\n" for at in (0, 1))
        (room.folder / "long.goal").write_text(text)
    (room.folder / "long.py").write_text(LONG + call)
    process = room.package.start("long.py", cwd=room.folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err, err
    assert process.returncode != 0


def test_an_interrupted_sweep_keeps_what_had_ended(room: Room) -> None:
    room.python("""
from gambeson import sim

parameters = {"traffic.0.load": [0.1, 0.2, 0.3]}

def interrupt(done, total):
    if done == 1:
        raise KeyboardInterrupt

try:
    sim.sweep("small.toml", parameters, resume="out", jobs=1, progress=interrupt)
except KeyboardInterrupt:
    pass
else:
    raise SystemExit("it went on")
assert sim.sweep("small.toml", parameters, resume="out").held == 1
""")
    room.run("sweep", "small.toml", "--over", "traffic.0.load=0.1,0.2,0.3", "--out", "whole")
    assert room.same("whole", "out")


def test_runs_go_side_by_side_without_pythons_lock(room: Room) -> None:
    """Each of two runs, half-way, waits for the other to be half-way too."""
    room.python("""
import threading
from concurrent.futures import ThreadPoolExecutor
from gambeson import sim

both = threading.Barrier(2, timeout=60)

def run(seed):
    met = []
    def meet(us, total):
        assert 0 < us < total == 1e9
        if not met:
            met.append(both.wait())
        else:
            raise StopIteration("far enough")
    try:
        sim.load("mesh.toml").with_values({"seed": seed, "measure": {"for_us": 1e9, "warmup_us": 0}}).run(progress=meet)
    except StopIteration as raised:
        return str(raised)

with ThreadPoolExecutor(2) as threads:
    assert list(threads.map(run, [1, 2])) == ["far enough"] * 2
""")


EXECUTORS = {
    "threads": "from concurrent.futures import ThreadPoolExecutor as executor",
    "processes": "from concurrent.futures import ProcessPoolExecutor as executor",
    "dask": """
from contextlib import contextmanager
from distributed import Client, LocalCluster

@contextmanager
def executor(workers):
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()
""",
}
SWEEP = """
import os
from gambeson import sim

if __name__ == "__main__":
    with executor(2) as pool:
        parameters = {"security.cache.entries": [1, 2, 4], "replay.processes.scheduler": ["spin-block", "gang"]}
        results = sim.sweep("key-cache.toml", parameters, executor=pool, resume="out")
        assert len(results) == 6 and results.held == 0
        # A mistake comes back from there as it is said here.
        try:
            sim.sweep("small.toml", {"traffic.0.load": [0.1, 1.5]}, executor=pool)
        except sim.ExperimentError as error:
            assert str(error).startswith("with traffic.0.load = 1.5, seed 1: "), error
        else:
            raise SystemExit("no mistake was found")
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_sweep_on_any_executor_is_the_command_lines(room: Room, executor: str) -> None:
    """Byte by byte, with a trace that workers find from the caller's folder."""
    done = room.package.call(EXECUTORS[executor] + SWEEP, room.folder)
    assert done.returncode == 0, done.stderr
    over = ["--over", "security.cache.entries=1,2,4", "--over", "replay.processes.scheduler=spin-block,gang"]
    room.run("sweep", "key-cache.toml", *over, "--out", "whole")
    assert room.same("whole", "out")


def test_a_sweep_on_the_ranks_of_an_mpi_job(room: Room) -> None:
    """mpi4py's pool, in a job of its own."""
    mpich = ROOT / "build" / "venv-mpich" / "bin"
    program = room.folder / "program.py"
    program.write_text("from mpi4py.futures import MPIPoolExecutor as executor\n" + SWEEP)
    command = [str(mpich / "mpiexec"), "-n", "3", str(mpich / "python"), "-m", "mpi4py.futures", str(program)]
    environment = {**room.package.environment(), "MPICH_INTERFACE_HOSTNAME": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=room.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    over = ["--over", "security.cache.entries=1,2,4", "--over", "replay.processes.scheduler=spin-block,gang"]
    room.run("sweep", "key-cache.toml", *over, "--out", "whole")
    assert room.same("whole", "out")


def test_advice_and_traces(room: Room) -> None:
    told = room.python("""
import json
from dataclasses import asdict
import polars
from gambeson import sim

advice = sim.advise("neighbours.goal", target_percent=90, machine="key-cache.toml")
table = polars.DataFrame(advice.table())
assert table["entries"].to_list() == [row.entries or 0 for row in advice.rows]
assert table["hit_rate"].to_list() == [row.cache.hit_rate for row in advice.rows]
assert table["hit_rate_with_buffer"].null_count() == 1
rows = [asdict(row) for row in advice.rows]
summary = asdict(sim.trace("neighbours.goal"))
print(json.dumps([advice.advice, advice.entries, rows, advice.machine, summary]))
""")
    room.run("advise", "neighbours.goal", "--machine", "key-cache.toml", "--target", "90", "--json", "advice.json")
    advice = room.json("advice.json")
    assert told[:4] == [advice[name] for name in ("advice", "entries", "rows", "machine")]
    summary = told[4]
    goal = (room.folder / "neighbours.goal").read_text()
    assert summary["ranks"] == 8
    assert (summary["sends"], summary["receives"]) == (goal.count(": send "), goal.count(": recv "))
    assert summary["compute_us"] > 0


@pytest.mark.parametrize(
    ("call", "error", "command"),
    [
        ("sim.load('nowhere.toml')", "FileNotFoundError", ["run", "nowhere.toml"]),
        (
            "sim.load('small.toml').with_values({'traffic.0.lod': 1})",
            "ExperimentError",
            ["run", "small.toml", "--set", "traffic.0.lod=1"],
        ),
        ("sim.load('misspelt.toml')", "ExperimentError", ["run", "misspelt.toml"]),
        (
            "sim.load('small.toml').with_values({'security': {'level': 'partition', 'cache': {'entries': 0}}}).run()",
            "ExperimentError",
            ["run", "small.toml", "--set", "security={ level='partition', cache = { entries = 0 } }"],
        ),
        (
            "sim.load('key-cache.toml').with_values({'replay.traces': ['no.goal']}).run()",
            "FileNotFoundError",
            ["run", "key-cache.toml", "--set", "replay.traces=['no.goal']"],
        ),
        (
            "sim.load('key-cache.toml').with_values({'replay.traces': ['lost.goal']}).run()",
            "TraceError",
            ["run", "key-cache.toml", "--set", "replay.traces=['lost.goal']"],
        ),
        (
            "sim.sweep('small.toml', {'traffic.0.load': [0.1, 1.5]})",
            "ExperimentError",
            ["sweep", "small.toml", "--over", "traffic.0.load=0.1,1.5", "--out", "out"],
        ),
        (
            "sim.sweep('small.toml', {'seed': [1, 2]}, repeat=2)",
            "ExperimentError",
            ["sweep", "small.toml", "--over", "seed=1,2", "--repeat", "2", "--out", "out"],
        ),
        (
            "sim.sweep('small.toml', {'seed': [1]}, resume='small.toml')",
            "FileExistsError",
            ["sweep", "small.toml", "--over", "seed=1", "--out", "small.toml"],
        ),
        ("sim.advise('no.goal')", "FileNotFoundError", ["advise", "no.goal"]),
        (
            "sim.advise('neighbours.goal', machine='small.toml')",
            "ExperimentError",
            ["advise", "neighbours.goal", "--machine", "small.toml"],
        ),
        ("sim.trace('small.toml')", "TraceError", ["advise", "small.toml"]),
    ],
)
def test_mistakes_are_exceptions_with_the_command_lines_sentences(
    room: Room, call: str, error: str, command: list[str]
) -> None:
    (room.folder / "misspelt.toml").write_text(SMALL + "lod = 1\n")
    (room.folder / "lost.goal").write_text("num_ranks 2\nrank 0 {\na: recv 8b from 1\n}\nrank 1 {\n}\n")
    told = room.python(f"""
import json
from gambeson import sim
try:
    {call}
except Exception as error:
    assert error.__traceback__ is not None
    print(json.dumps([type(error).__name__, str(error)]))
""")
    done = room.call(*command)
    assert done.returncode != 0
    assert told == [error, done.stderr.removeprefix("gambeson: ").rstrip("\n")]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("sim.load(7)", "TypeError: an experiment is a path, TOML text or a dict, not int"),
        ("sim.load('small.toml').with_values({'seed': object})", "give a bool, number, string, list or dict"),
        ("sim.sweep('small.toml', {'seed': []})", "ValueError: seed names no values"),
        ("sim.sweep('small.toml', {'seed': [1, 1]})", "ValueError: seed is 1 twice"),
        ("sim.advise('neighbours.goal', target_percent=101)", "ValueError: a target of 101 % cannot be reached"),
    ],
)
def test_mistakes_that_only_python_can_make(room: Room, call: str, sentence: str) -> None:
    done = room.package.call(f"from gambeson import sim\n{call}\n", room.folder)
    assert sentence in done.stderr


def test_the_example_draws_its_picture(room: Room) -> None:
    process = room.package.start("overhead.py", "overhead.png", "sweep", cwd=room.folder)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "overhead.png\n"), err
    assert (room.folder / "overhead.png").read_bytes().startswith(b"\x89PNG")
    assert (room.folder / "sweep" / "report.html").is_file()
