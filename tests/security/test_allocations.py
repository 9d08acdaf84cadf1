"""After warm-up no message costs the provider an allocation.

All memory of the provider comes from one allocator, which counts (`allocations` of `gambeson run --json`). A job runs
twice, the second time ten times as long: what a message costs would show ten times. aws-lc, the only C code inside, has
malloc; a small library in front of malloc counts the calls that come out of the provider.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.jobs import Job
from harness.mpis import ALL, ROOT, Mpi
from harness.programs import Programs

PROGRAMS = Path(__file__).resolve().parent / "programs"
GROWTH = 60
"""Allocations that ten times the messages may cost beyond those of the short run: queues that grow to a new height. In
longer runs it is one for a hundred messages."""
LONG = pytest.mark.long
WEAK = '[[rule]]\nbetween = ["*", "*"]\ncommunicator = "*"\nprotection = "none"'
CASES = [
    # pattern, size in bytes, rounds, threads
    pytest.param("posted", 8, 400, 1, marks=LONG),
    pytest.param("posted", 9000, 300, 1, marks=LONG),
    ("posted", 1 << 20, 40, 1),
    pytest.param("posted", 9000, 100, 4, marks=LONG),
    pytest.param("unexpected", 300, 40, 1, marks=LONG),
    pytest.param("unexpected", 9000, 40, 1, marks=LONG),
    pytest.param("unexpected", 400_000, 6, 1, marks=LONG),
    ("unexpected", 300, 20, 4),
]


@dataclass(frozen=True)
class Cost:
    messages: int
    allocations: int
    mallocs: int


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("counter") / "malloc_counter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", PROGRAMS / "malloc_counter.c", "-o", library, "-ldl"], check=True)
    return library


@pytest.fixture
def cost(run_job: Callable[..., Job], counter: Path, tmp_path: Path) -> Callable[..., Cost]:
    def run(
        mpi: Mpi, pattern: str, size: int, rounds: int, threads: int, *options: str, how: Sequence[str] = ()
    ) -> Cost:
        assert mpi.mpicc
        program = Programs(PROGRAMS, ROOT / "build" / "programs").compile(mpi.mpicc, "steady.c", "-pthread")
        stats, counted = tmp_path / f"stats-{rounds}.json", tmp_path / f"mallocs-{rounds}"
        counted.mkdir()
        preload = 'export LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}"; exec "$@"'
        words = ["sh", "-c", preload, counter, program, pattern, str(size), str(rounds), str(threads), *how]
        # The compiler may be that of another MPI with the same libmpi.so.
        env = {"MALLOC_COUNTER": str(counted)}
        if mpi.name != "debian-openmpi":
            env["LD_LIBRARY_PATH"] = str(mpi.bin.parent / "lib")
        job = run_job(mpi, words, n=2, options=["--quiet", f"--json={stats}", *options], env=env)
        job.check()
        assert "all ok" in job.stdout, job.describe()
        ranks = json.loads(stats.read_text())["ranks"]
        assert all(rank["allocations"] > 20 for rank in ranks), "nothing is counted"
        mallocs = [int(path.read_text()) for path in counted.iterdir()]
        assert len(mallocs) == 2, mallocs
        assert all(mallocs), "no malloc of the provider's was seen, not even when it started"
        sums = {name: sum(rank[name] for rank in ranks) for name in ("messages_sent", "allocations")}
        return Cost(sums["messages_sent"], sums["allocations"], sum(mallocs))

    return run


@pytest.fixture(autouse=True)
def sealed(plain: bool) -> None:
    if plain:
        pytest.skip("a plain job has no provider of ours")


@pytest.mark.mpis(*ALL)
@pytest.mark.parametrize(("pattern", "size", "rounds", "threads"), CASES)
def test_no_allocation_per_message(
    mpi: Mpi, cost: Callable[..., Cost], pattern: str, size: int, rounds: int, threads: int
) -> None:
    short, long = cost(mpi, pattern, size, rounds, threads), cost(mpi, pattern, size, 10 * rounds, threads)
    print(f"{mpi.name} {pattern} {size} B, {threads} threads: {short} {long}")
    check(short, long)


def check(short: Cost, long: Cost) -> None:
    messages = long.messages - short.messages
    assert messages > 10 * GROWTH, "too few messages to tell"
    limit = max(GROWTH, messages // 100)
    assert long.allocations - short.allocations <= limit, f"for {messages} messages more"
    assert long.mallocs - short.mallocs <= limit, f"for {messages} messages more"


@pytest.mark.mpis("mpich", "openmpi")
@pytest.mark.parametrize(("size", "rounds"), [(300, 20), (9000, 20)])
def test_nor_where_communicators_have_protections(
    mpi: Mpi, cost: Callable[..., Cost], tmp_path: Path, size: int, rounds: int
) -> None:
    """Those of three threads beside each other: records have keys of the pair's protection and of another."""
    policy = tmp_path / "policy.toml"
    policy.write_text('protection = "integrity"\n' + WEAK)
    work, options, how = ("unexpected", size), ["--policy", str(policy)], ["protected"]
    check(cost(mpi, *work, rounds, 3, *options, how=how), cost(mpi, *work, 10 * rounds, 3, *options, how=how))


@pytest.mark.mpis("mpich")
def test_an_allocation_per_message_would_show(mpi: Mpi, cost: Callable[..., Cost]) -> None:
    """A change of keys makes room for the next one. With one for every message that is what this test looks for."""
    tuning = ["--tuning", "epoch-records=1"]
    short, long = cost(mpi, "posted", 8, 100, 1, *tuning), cost(mpi, "posted", 8, 1000, 1, *tuning)
    assert long.allocations - short.allocations > (long.messages - short.messages) // 2
