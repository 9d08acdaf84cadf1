"""`gambeson audit`: what is readable on the network, and that the audit notices when something is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import ALL, Mpi, clean_environment

Audit = Callable[..., Job]


@pytest.fixture
def audit(gambeson: Path) -> Audit:
    """audit(mpi, *options, n=2, prefix=[]) -> Job."""

    def run(mpi: Mpi, *options: str, n: int = 2, prefix: tuple[str, ...] = ()) -> Job:
        command = [*prefix, str(gambeson), "audit", *options, "--", *mpi.mpiexec, "-n", str(n)]
        return run_marked(command, env={**clean_environment(), **mpi.common}, timeout=280)

    return run


def rows(job: Job) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(job.stdout)["operations"]}


def of_verdict(job: Job, *verdicts: str) -> list[str]:
    return [name for name, row in rows(job).items() if row["verdict"] in verdicts]


listening = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to listen on the interfaces")


@listening
@pytest.mark.mpis(*ALL)
def test_nothing_is_readable(audit: Audit, mpi: Mpi) -> None:
    job = audit(mpi, "--json")
    found = rows(job)
    wrong = of_verdict(job, "readable", "wrong_data", "broken")
    assert wrong == [], [found[name] for name in wrong]
    job.check()
    assert of_verdict(job, "too_short") == ["MPI_Send, 0 B", "MPI_Send, 1 B"]
    for size in ("8 B", "16 B", "4 KiB", "1 MiB", "64 MiB"):
        assert found[f"MPI_Send, {size}"]["verdict"] == "sealed"
    for name in ("MPI_Isend", "MPI_Ssend_init", "MPI_Mprobe + MPI_Mrecv", "MPI_Allreduce", "MPI_Ineighbor_alltoallw"):
        assert found[name]["verdict"] == "sealed", found[name]
    assert found["MPI_Put, lock"]["verdict"] in ("sealed", "refused")
    assert found["MPI_Put, lock"]["plain"]["hits"] > 0
    assert len(of_verdict(job, "sealed")) > 70


@listening
@pytest.mark.mpis("mpich")
def test_more_processes_than_two(audit: Audit, mpi: Mpi) -> None:
    job = audit(mpi, "--json", n=3).check()
    assert len(of_verdict(job, "sealed")) > 100
    assert json.loads(job.stdout)["processes"] == 3


@listening
@pytest.mark.mpis("mpich")
def test_what_a_policy_leaves_readable_is_found(audit: Audit, mpi: Mpi, tmp_path: Path) -> None:
    policy = tmp_path / "gambeson.toml"
    policy.write_text('protection = "integrity"\n')
    policy.chmod(0o644)
    job = audit(mpi, "--json", "--policy", str(policy))
    assert job.status == 1, job.describe()
    assert json.loads(job.stdout)["result"] == "failed"
    assert {"MPI_Send, 64 MiB", "MPI_Bcast"} <= set(of_verdict(job, "readable"))


@listening
@pytest.mark.mpis("mpich")
def test_the_table_names_every_operation_once(audit: Audit, mpi: Mpi) -> None:
    job = audit(mpi).check()
    lines = [line for line in job.stdout.splitlines() if line.startswith("MPI_")]
    assert len(lines) == 130
    assert job.stdout.endswith("PASSED\n")
    assert "128 of 130 operations: seen in plain, not seen sealed." in job.stdout


@listening
@pytest.mark.mpis("mpich")
def test_who_may_not_listen_is_told_what_to_do(audit: Audit, mpi: Mpi) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    job = audit(mpi, prefix=(setpriv, "--bounding-set", "-net_raw", "--inh-caps", "-all"))
    assert job.status == 77, job.describe()
    assert "CAP_NET_RAW" in job.stderr
    assert "setcap cap_net_raw+ep" in job.stderr
    assert job.stdout == ""


@listening
@pytest.mark.mpis("mpich")
def test_one_process_is_too_few(audit: Audit, mpi: Mpi) -> None:
    job = audit(mpi, n=1)
    assert job.status == 69, job.describe()
    assert "start at least two" in job.stderr


def test_a_missing_launcher_is_named(gambeson: Path) -> None:
    job = run_marked([str(gambeson), "audit", "--", "/nonexistent/mpiexec"], env=clean_environment(), timeout=30)
    assert job.status == 69
    assert "/nonexistent/mpiexec" in job.stderr


@pytest.mark.mpis("mpich")
def test_a_missing_library_is_named(gambeson: Path, mpi: Mpi) -> None:
    environment = {**clean_environment(), "GAMBESON_LIBMPI": "/nonexistent/libmpi.so"}
    job = run_marked([str(gambeson), "audit", "--", *mpi.mpiexec, "-n", "2"], env=environment, timeout=30)
    assert job.status == 69
    assert "/nonexistent/libmpi.so" in job.stderr
