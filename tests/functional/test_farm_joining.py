"""Workers that somebody else starts, and that join by a file: `gambeson worker --farm FILE`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hosts import Hosts
from harness.jobs import run_marked
from harness.mpis import Mpi
from harness.python import Package

PROGRAM = """
import collections, json, os, pathlib, socket, sys, time
from gambeson import farm
FILE, COUNT, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

def where(text):
    time.sleep(SECONDS)
    return text.lower(), socket.gethostname(), os.getpid()

security = farm.Security(unpickle=["h2", "h3"])
texts = ["CANARY-%06d" % at for at in range(COUNT)]
options = {"listen": "10.77.0.1"} if os.path.exists("/sys/class/net/eth0") else {}
with farm.Manager(where, workers=farm.joining(FILE, **options), security=security) as manager:
    mode = os.stat(FILE).st_mode & 0o777
    found = []
    for result in manager.run(texts):
        found.append(result)
        pathlib.Path(f"{FILE}.{result[1]}").touch()
    assert [text for text, _, _ in found] == [text.lower() for text in texts]
    by_host = collections.Counter(host for _, host, _ in found)
    print(json.dumps([mode, by_host, sorted({pid for *_, pid in found}), manager.parallelism]))
print(json.dumps(os.path.exists(FILE)))
"""


class Site:
    """Starts managers and workers on hosts."""

    def __init__(self, made: Hosts, package: Package, gambeson: Path, folder: Path) -> None:
        self.made = made
        self.package = package
        self.gambeson = gambeson
        self.folder = folder
        self.file = folder / "farm.json"
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self._started: list[subprocess.Popen[str]] = []

    def _start(self, host: str, command: list[str | Path]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.made.command(host, [str(word) for word in command]),
            env=self.package.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def manager(self, count: int, seconds: float) -> subprocess.Popen[str]:
        return self._start("h1", [self.package.python, self.program, self.file, str(count), str(seconds)])

    def worker(self, host: str, file: Path | None = None, patience: int = 30) -> subprocess.Popen[str]:
        command: list[str | Path] = [self.gambeson, "worker", "--farm", file or self.file, "--patience", str(patience)]
        return self._start(host, [*command, "--python", self.package.python])

    def written(self) -> None:
        """Waits for the manager's file."""
        self._until(self.file)

    def gave(self, host: str) -> None:
        """Waits until the manager has a result from a host."""
        self._until(self.file.with_name(f"{self.file.name}.{host}"))

    def _until(self, file: Path) -> None:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline, f"{file} is not there"
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def cluster(site: Hosts, package: Package, gambeson: Path, tmp_path: Path) -> Iterator[Site]:
    with contextlib.closing(Site(site, package, gambeson, tmp_path)) as made:
        yield made


def said(process: subprocess.Popen[str], timeout: float = 60) -> list[Any]:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.namespaces
def test_workers_of_other_hosts_join_by_a_file(cluster: Site, tmp_path: Path) -> None:
    early = cluster.worker("h2")
    time.sleep(0.5)
    manager = cluster.manager(400, 0.01)
    cluster.written()
    late = [cluster.worker("h3"), cluster.worker("h3")]
    # Somebody who could not read the file, and made one of his own.
    forged = tmp_path / "forged.json"
    forged.touch(mode=0o600)
    forged.write_text(json.dumps({**json.loads(cluster.file.read_text()), "secret": "00" * 32}))
    stranger = cluster.worker("h3", forged, patience=1)
    (mode, by_host, pids, parallelism), still_there = said(manager)
    assert mode == 0o600 and not still_there
    assert set(by_host) == {"h2", "h3"} and sum(by_host.values()) == 400
    assert len(pids) == 3 and parallelism > 100
    # They end with the farm, and say nothing.
    for worker in [early, *late]:
        assert said(worker, 10) == []
    _, err = stranger.communicate(timeout=20)
    assert stranger.returncode == 69 and "no farm was joined for 1 s" in err, err


@pytest.mark.namespaces
def test_many_that_wait_for_the_manager_are_all_taken(cluster: Site) -> None:
    early = [cluster.worker(host) for host in ("h2", "h3") * 4]
    manager = cluster.manager(1500, 0.01)
    out, err = manager.communicate(timeout=60)
    assert manager.returncode == 0, err
    _, by_host, pids, _ = json.loads(out.splitlines()[0])
    assert len(pids) == len(early) and sum(by_host.values()) == 1500
    assert "is lost" not in err
    for worker in early:
        assert said(worker, 10) == []


@pytest.mark.namespaces
def test_who_joins_later_takes_the_place_of_who_is_gone(cluster: Site) -> None:
    manager = cluster.manager(300, 0.02)
    first = cluster.worker("h2")
    cluster.gave("h2")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    last = cluster.worker("h3")
    (_, by_host, pids, _), _ = said(manager)
    assert set(by_host) == {"h2", "h3"} and len(pids) == 2
    assert said(last, 10) == []


@pytest.mark.namespaces
def test_workers_end_with_a_manager_that_is_killed(cluster: Site) -> None:
    manager = cluster.manager(10**6, 0.01)
    worker = cluster.worker("h2")
    cluster.gave("h2")
    manager.send_signal(signal.SIGKILL)
    manager.communicate()
    worker.communicate(timeout=60)
    # Its file is left, with an address where nobody is.
    _, err = cluster.worker("h3", patience=1).communicate(timeout=30)
    assert "no farm was joined for 1 s" in err


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (None, 0, "the manager writes it when it begins"),
        ("{}", 0o600, "is no file of a farm"),
        ("{}", 0o644, "others than its owner can get at the file of the farm"),
        ('{"address": "127.0.0.1:9"}', 0o600, "start its workers in that job"),
    ],
)
def test_a_file_by_which_nobody_can_join(
    package: Package, gambeson: Path, tmp_path: Path, content: str | None, mode: int, sentence: str
) -> None:
    file = tmp_path / "farm.json"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    command: list[str | Path] = [gambeson, "worker", "--farm", file, "--patience", "1", "--python", package.python]
    done = subprocess.run(command, env=package.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 69 and sentence in done.stderr, done.stderr


@pytest.mark.mpis("mpich", "intel", "openmpi")
def test_a_job_is_a_farm(package: Package, gambeson: Path, tmp_path: Path, mpi: Mpi) -> None:
    """Manager and workers are ranks of one job, whose secret they have; the file has none."""
    program = tmp_path / "program.py"
    program.write_text("""
import json, os, sys, time
from gambeson import farm
def square(x):
    time.sleep(0.005)
    return x * x, os.getpid()
with farm.Manager(square, workers=farm.joining(sys.argv[1], listen="127.0.0.1")) as manager:
    said = json.loads(open(sys.argv[1]).read())
    manager.wait_for_workers(2)
    found = manager.compute(range(100), errors="return")
    print(json.dumps([sorted(said), sum(square for square, _ in found), len({pid for _, pid in found})]), flush=True)
""")
    file = tmp_path / "farm.json"
    command = [gambeson, "run", "--", *mpi.mpiexec, "-n", "1", package.python, program, file]
    command += [":", "-n", "2", gambeson, "worker", "--farm", file, "--python", package.python]
    environment = {**os.environ, **mpi.common, **package.environment()}
    job = run_marked([str(word) for word in command], env=environment, timeout=90, cwd=tmp_path)
    assert job.status == 0, job.describe()
    line = next(line for line in job.stdout.splitlines() if line.startswith("["))
    assert json.loads(line) == [["address"], sum(x * x for x in range(100)), 2]
