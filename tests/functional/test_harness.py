"""The harness itself: it notices failures, hangs and survivors, and cleans up after them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from harness.hosts import Hosts
from harness.jobs import run_marked
from harness.mpis import Mpi

ENVIRONMENT = dict(os.environ)


def test_status_and_output_are_reported() -> None:
    job = run_marked(["bash", "-c", "echo out; echo err >&2; exit 7"], env=ENVIRONMENT, timeout=10)
    assert (job.status, job.stdout, job.stderr, job.survivors) == (7, "out\n", "err\n", [])
    with pytest.raises(AssertionError, match="status 7"):
        job.check()


def test_a_hang_is_ended_and_reported() -> None:
    started = time.monotonic()
    job = run_marked(["bash", "-c", "trap '' TERM; while :; do sleep 1; done"], env=ENVIRONMENT, timeout=1)
    assert job.timed_out
    assert time.monotonic() - started < 20
    with pytest.raises(AssertionError, match="no end after"):
        job.check()


def test_a_survivor_is_named_and_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"setsid sleep 77 >/dev/null 2>&1 & echo $! >{pid_file}"
    job = run_marked(["bash", "-c", script], env=ENVIRONMENT, timeout=10)
    assert job.survivors == ["sleep 77"]
    time.sleep(0.2)
    status = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    assert not status.exists() or " Z " in status.read_text()


@pytest.mark.namespaces
def test_two_hosts_reach_each_other_and_vanish(two_hosts: Hosts) -> None:
    job = two_hosts.run("h1", ["bash", "-c", "hostname; getent hosts h2"], env=ENVIRONMENT)
    assert job.check().stdout.split() == ["h1", "10.77.0.2", "h2"]
    job = two_hosts.run(
        "h1", [str(two_hosts.agent), "h2", "hostname; echo ${SECRET:-none}"], env={**ENVIRONMENT, "SECRET": "x"}
    )
    assert job.check().stdout.split() == ["h2", "none"]
    two_hosts.down()
    assert not list(Path("/run/netns").glob(f"{two_hosts.prefix}-*"))


@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
@pytest.mark.namespaces
def test_plain_jobs_span_two_hosts(two_hosts: Hosts, mpi: Mpi, tmp_path: Path) -> None:
    options, env = two_hosts.launcher(mpi.name)
    program = tmp_path / "where.py"
    program.write_text(
        "import socket\nfrom mpi4py import MPI\n"
        "print(sorted(MPI.COMM_WORLD.allgather(socket.gethostname())), flush=True)\n"
    )
    command = [*mpi.mpiexec, *options, "-n", "2", mpi.python, str(program)]
    job = two_hosts.run("h1", command, env={**ENVIRONMENT, **mpi.common, **mpi.env, **env})
    assert "['h1', 'h2']" in job.check().stdout
