"""Programs of links under `gambeson run`: with MPI and without, and who is kept out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness.jobs import run_marked
from harness.mpis import Mpi, clean_environment
from harness.programs import Programs


def two(neighbours: Path, file: Path) -> list[str]:
    return ["sh", "-c", f"{neighbours} {file} 2 0 & {neighbours} {file} 2 1 && wait $!"]


def test_two_processes_without_mpi(gambeson: Path, neighbours: Path, tmp_path: Path) -> None:
    command = [str(gambeson), "run", "--json=" + str(tmp_path / "report"), "--", *two(neighbours, tmp_path / "s")]
    job = run_marked(command, env=clean_environment(), timeout=60).check()
    said = sorted(job.stdout.splitlines())
    assert said == [
        "0: 1, asked by a process of the job with the role rank (privacy)",
        "1: 0, asked by a process of the job with the role rank (privacy)",
    ], job.describe()
    assert "is no launcher of an MPI" in job.stderr and "had links, as the policy has them" in job.stderr
    assert "so nothing was sealed" not in job.stderr
    report = json.loads((tmp_path / "report").read_text())
    assert len(report["links"]) == 2 and report["ranks"] == [] and report["unprotected"] == [], report


def test_ranks_of_a_real_mpiexec(gambeson: Path, mpi: Mpi, neighbours: Path, tmp_path: Path) -> None:
    policy = tmp_path / "open.toml"
    policy.write_text('[[rule]]\nbetween = ["*", "*"]\nclass = "neighbours"\nprotection = "integrity"\n')
    ranks = [*mpi.mpiexec, "-n", "2", str(neighbours), str(tmp_path / "s"), "2"]
    command = [str(gambeson), "run", "--policy", str(policy), "--", *ranks]
    job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60).check()
    said = sorted(job.stdout.splitlines())
    assert said == [
        "0: 1, asked by rank 0 with the role rank (integrity)",
        "1: 0, asked by rank 1 with the role rank (integrity)",
    ], job.describe()
    assert "the policy lets others read links of class neighbours" in job.stderr
    assert "rank 0 on " in job.stderr and "rank 1 on " in job.stderr and "had links" in job.stderr


def test_a_stranger_outside_the_job_is_refused(gambeson: Path, neighbours: Path, tmp_path: Path) -> None:
    """Another job of the same user, on the same host, with a startpoint of the first."""
    file = tmp_path / "s"
    # The stranger's neighbour is the one that waits; it asks nobody before that one is there.
    waits = f"{neighbours} {file} 2 0 & pid=$!; while ! test -e {file}.0; do sleep 0.01; done"
    inner = f"{gambeson} run -- {neighbours} {file} 2 1"
    outer = f"{waits}; env -u GAMBESON_JOB -u LD_PRELOAD {inner}; echo stranger ended with $?; kill $pid"
    command = [str(gambeson), "run", "--", "sh", "-c", outer]
    job = run_marked(command, env=clean_environment(), timeout=60)
    assert "stranger ended with 1" in job.stdout and "asked by" not in job.stdout, job.describe()
    assert "belongs to another job, or to none" in job.stderr, job.describe()


def test_outside_a_job_a_program_says_what_to_do(neighbours: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(neighbours), str(tmp_path / "s"), "2", "0"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "start the program with `gambeson run`" in done.stderr, done


@pytest.mark.mpis("mpich", "openmpi")
def test_mpi_in_a_program_of_links_is_refused(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    """By itself, and below a launcher that the program starts without anybody's knowing."""
    start = programs.compile(str(mpi.mpicc), "start.c")
    hidden = tmp_path / "hidden"
    hidden.write_bytes(Path("/bin/sh").read_bytes())
    hidden.chmod(0o755)
    for words in ([str(start)], [str(hidden), "-c", " ".join([*mpi.mpiexec, "-n", "2", str(start)])]):
        command = [str(gambeson), "run", "--", *words]
        job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60)
        assert job.status == 70, job.describe()
        assert "this job was started without a launcher of an MPI, for links" in job.stderr, job.describe()
