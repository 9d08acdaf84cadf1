"""What a sealed job reports at its end: of every rank, on every host, for people and for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hosts import Hosts
from harness.jobs import Job
from harness.mpis import Mpi, clean_environment
from harness.programs import ASK, Programs

EXCHANGE = """
from mpi4py import MPI
world = MPI.COMM_WORLD
for n in range({rounds}):
    assert world.sendrecv(b"x" * {size}, (world.rank + 1) % world.size) == b"x" * {size}
world.Barrier()
"""

pytestmark = pytest.mark.usefixtures("sealed_only")


@pytest.fixture
def sealed_only(plain: bool) -> None:
    if plain:
        pytest.skip("a plain job has no Gambeson to report")


def exchange(mpi: Mpi, rounds: int = 10, size: int = 1000) -> list[str]:
    return [mpi.python, "-c", EXCHANGE.format(rounds=rounds, size=size)]


def ranks(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["ranks"])


@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_every_rank_reports(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    job = run_job(mpi, exchange(mpi), n=3, options=["--stats", f"--json={report}"]).check()
    found = ranks(report)
    assert [rank["rank"] for rank in found] == [0, 1, 2]
    for rank in found:
        assert rank["state"] == "closed" and rank["message"] == ""
        assert rank["messages_sent"] >= 10 and rank["messages_received"] >= 10
        assert rank["bytes_sent"] >= 10_000 and rank["bytes_received"] >= 10_000
        assert rank["records_sealed"] >= 10
        assert rank["records_integrity"] == rank["records_plain"] == 0
        assert rank["cache_hits"] > rank["cache_misses"] > 0
        assert rank["peers"] >= 1
    title = "rank  host  messages"
    assert title.split() == next(line for line in job.stderr.splitlines() if "messages" in line).split()[:3]
    rows = [line.split()[0] for line in job.stderr.splitlines() if line.split()[:1] in (["0"], ["1"], ["2"])]
    assert rows == ["0", "1", "2"], job.describe()


@pytest.mark.parametrize(("protection", "counter"), [("integrity", "records_integrity"), ("none", "records_plain")])
def test_a_weaker_policy_shows(
    run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path, protection: str, counter: str
) -> None:
    policy, report = tmp_path / "policy.toml", tmp_path / "report.json"
    policy.write_text(f'protection = "{protection}"\n')
    job = run_job(mpi, exchange(mpi), options=["--policy", str(policy), f"--json={report}"]).check()
    assert "the policy lets some pairs of processes exchange messages that others can read" in job.stderr
    for rank in ranks(report):
        assert rank[counter] >= 10, rank


def test_partition_keys_are_used(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    host = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    policy, report = tmp_path / "policy.toml", tmp_path / "report.json"
    policy.write_text(f'[[partition]]\nname = "clinic"\nhosts = ["{host}"]\nsecret_file = "secret"\n')
    (tmp_path / "secret").write_text("0123456789abcdef" * 4 + "\n")
    (tmp_path / "secret").chmod(0o600)
    run_job(mpi, exchange(mpi), options=["--policy", str(policy), f"--json={report}"]).check()
    assert all(rank["records_sealed"] >= 10 for rank in ranks(report))


def test_epochs_end_and_go_on(run_job: Callable[..., Job], mpi: Mpi, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--tuning", "epoch-records=16", f"--json={report}"]
    run_job(mpi, exchange(mpi, rounds=200), options=options).check()
    assert all(rank["rekeys"] >= 5 for rank in ranks(report)), ranks(report)


@pytest.mark.mpis("debian-openmpi")
@pytest.mark.parametrize("source", ["start_f08.f90", "start_mpifh.f90"])
def test_fortran_runs_sealed(
    run_job: Callable[..., Job], mpi: Mpi, programs: Programs, tmp_path: Path, source: str
) -> None:
    assert mpi.mpifort
    report = tmp_path / "report.json"
    job = run_job(mpi, [programs.compile(mpi.mpifort, source), "thread"], options=[f"--json={report}"]).check()
    assert sorted(job.stdout.split("\n"))[-2:] == ["rank 0 started", "rank 1 started"]
    assert len(ranks(report)) == 2


@pytest.fixture
def separate_memory(two_hosts: Hosts, tmp_path: Path) -> Iterator[str]:
    """An ssh to h2, which has a /dev/shm of its own as a real host has."""
    mount = "mount --make-rprivate / && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && echo ready && exec sleep 300"
    command = two_hosts.command("h2", ["unshare", "-m", "bash", "-c", mount])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
        try:
            assert keeper.stdout and keeper.stdout.readline() == "ready\n"
            ssh = tmp_path / "ssh"
            enter = f"exec nsenter -m -t {keeper.pid} ip"
            ssh.write_text(two_hosts.agent.read_text().replace("exec ip", enter, 1))
            ssh.chmod(0o755)
            yield str(ssh)
            left = subprocess.run(
                ["nsenter", "-m", "-t", str(keeper.pid), "ls", "/dev/shm"], capture_output=True, text=True, check=True
            )
            assert "gambeson" not in left.stdout
        finally:
            keeper.kill()


def run_on_two_hosts(
    gambeson: Path, mpi: Mpi, two_hosts: Hosts, ssh: str, program: list[str], *options: str, env: dict[str, str]
) -> Job:
    words, _ = two_hosts.launcher(mpi.name)
    words = [ssh if word == str(two_hosts.agent) else word for word in words]
    command = [str(gambeson), "run", "-q", *options, "--", *mpi.mpiexec, *words, "-n", "2", *program]
    return two_hosts.run("h1", command, env={**clean_environment(), **mpi.common, **env})


@pytest.mark.namespaces
@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_two_hosts_run_sealed_and_report(
    gambeson: Path, mpi: Mpi, two_hosts: Hosts, separate_memory: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    run_on_two_hosts(
        gambeson, mpi, two_hosts, separate_memory, exchange(mpi), "--stats", f"--json={report}", env={}
    ).check()
    assert [(rank["rank"], rank["host"]) for rank in ranks(report)] == [(0, "h1"), (1, "h2")]
    assert all(rank["records_sealed"] >= 10 for rank in ranks(report))


@pytest.mark.namespaces
def test_another_hosts_refusal_reaches_the_launcher(
    gambeson: Path, mpi: Mpi, two_hosts: Hosts, separate_memory: str
) -> None:
    script = '[ "$(hostname)" = h2 ] && export FI_PROVIDER=tcp; exec "$@"'
    program = ["bash", "-c", script, "sh", *exchange(mpi)]
    job = run_on_two_hosts(gambeson, mpi, two_hosts, separate_memory, program, env={})
    assert job.status == 70, job.describe()
    assert "because of rank 1 on h2" in job.stderr, job.describe()
    assert 'FI_PROVIDER is "tcp", and sealing needs' in job.stderr, job.describe()
    assert not job.survivors


@pytest.mark.namespaces
@pytest.mark.mpis("mpich")
def test_the_secret_travels_in_no_argument_and_no_environment(
    gambeson: Path, mpi: Mpi, two_hosts: Hosts, separate_memory: str, tmp_path: Path
) -> None:
    """What ssh is given is what a system's process list and its logs show."""
    log, real = tmp_path / "log", Path(separate_memory)
    ssh = tmp_path / "logging-ssh"
    ssh.write_text(f'#!/bin/bash\n{{ printf "%s\\0" "$@"; env -0; }} >> {log}\nexec {real} "$@"\n')
    ssh.chmod(0o755)
    script = f'{sys.executable} {ASK} credential | od -An -tx1 -j26 -N32 | tr -d " \\n"; echo'
    job = run_on_two_hosts(gambeson, mpi, two_hosts, str(ssh), ["bash", "-c", script], env={}).check()
    [secret] = set(job.stdout.split())
    assert len(secret) == 64
    held = log.read_bytes()
    assert b"keep" in held and secret.encode() not in held.lower() and bytes.fromhex(secret) not in held
