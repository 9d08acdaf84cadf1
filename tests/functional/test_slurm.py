"""`gambeson run -- srun` under a real Slurm on this machine; its daemons start the ranks, not this process."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import unavailable
from harness import mpis
from harness.jobs import Job
from harness.mpis import Mpi
from harness.programs import Programs
from harness.slurm import Slurm, slurm

REFUSED = 70
# What each MPI's ranks can be started by in Debian's Slurm.
PMI = {"mpich": "pmi2", "openmpi": "pmix", "intel": "pmi2", "debian-openmpi": "pmix"}
SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(f'sum {w.allreduce(w.rank + 1)}', flush=True)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Slurm with two nodes: this machine under its own name, and once more under a name that looks like another's."""
    try:
        with slurm(tmp_path_factory.mktemp("slurm"), nodes=2) as made:
            yield made
    except mpis.Unavailable as reason:
        unavailable(str(reason))


def srun(cluster: Slurm, mpi: Mpi, *options: str) -> list[str]:
    return ["srun", *options, "-N1", "-w", cluster.nodes[0], "-n", "2", f"--mpi={PMI[mpi.name]}"]


def run(
    cluster: Slurm,
    gambeson: Path,
    command: Sequence[str],
    *options: str,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Job:
    line = [*prefix, str(gambeson), "run", "--intra-host", "sealed", *options, "--", *command]
    job = cluster.run(line, env=env, timeout=100)
    assert not job.timed_out and not job.survivors, job.describe()
    return job


def refused(job: Job, *parts: str) -> None:
    assert job.status == REFUSED, job.describe()
    for part in parts:
        assert part in job.stderr, f"no {part!r} in\n{job.describe()}"


def sealed(cluster: Slurm, gambeson: Path, mpi: Mpi, program: Sequence[str], *options: str) -> Job:
    """Two ranks run, and each says that it sealed what it sent."""
    report = cluster.folder / "report.json"
    command = [*srun(cluster, mpi, *options), *program]
    job = run(cluster, gambeson, command, "--stats", f"--json={report}", env=mpi.common)
    assert job.status == 0, job.describe()
    ranks = json.loads(report.read_text())["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1], ranks
    assert all(rank["records_sealed"] > 0 and rank["records_plain"] == 0 for rank in ranks), ranks
    assert re.search(r"^ +1 +\S+ +\d+/\d+", job.stderr, re.MULTILINE), job.describe()
    return job


def test_every_message_is_sealed(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    job = sealed(cluster, gambeson, mpi, [mpi.python, "-c", SUM])
    assert job.stdout.count("sum 3") == 2, job.describe()


@pytest.mark.long
@pytest.mark.mpis("debian-openmpi")
def test_an_mpi_whose_libfabric_has_tcp_in_parts(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    job = sealed(cluster, gambeson, mpi, [mpi.python, "-c", SUM])
    assert job.stdout.count("sum 3") == 2, job.describe()


@pytest.mark.long
@pytest.mark.mpis(*mpis.ALL)
def test_a_program_that_is_linked_with_its_mpi(cluster: Slurm, gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    """Its mpiexec is neither beside it nor first in PATH."""
    assert mpi.mpicc is not None
    program = programs.compile(mpi.mpicc, "start.c")
    job = run(cluster, gambeson, [*srun(cluster, mpi), str(program)], env=mpi.common)
    assert job.status == 0 and job.stdout.count("started") == 2, job.describe()


@pytest.mark.mpis("mpich")
def test_status_of_the_program(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    program = "import sys; from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); MPI.Finalize(); sys.exit(7)"
    assert run(cluster, gambeson, [*srun(cluster, mpi), mpi.python, "-c", program]).status == 7


@pytest.mark.namespaces
@pytest.mark.mpis("mpich")
def test_wrong_secret(cluster: Slurm, gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    wrapper = [mpi.python, str(programs.path("other_job.py")), "other-secret"]
    job = run(cluster, gambeson, [*srun(cluster, mpi), *wrapper, mpi.python, "-c", SUM])
    refused(job, "it does not carry this job's proof", "start all processes with one `gambeson run`")
    assert "sum" not in job.stdout, job.describe()


@pytest.mark.long
def test_killed_rank(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    program = (
        "import os; from mpi4py import MPI; world = MPI.COMM_WORLD; world.Barrier();"
        " world.rank and os.kill(os.getpid(), 9); world.recv()"
    )
    # Without -K srun lets the others wait, sealed or not.
    job = run(cluster, gambeson, [*srun(cluster, mpi, "-K"), mpi.python, "-c", program], env=mpi.common)
    assert job.status not in (0, REFUSED) and "the job failed while rank 0 on " in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_batch_script(cluster: Slurm, gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    """On a node whose name this machine does not know as its own: Slurm tells the script."""
    ours = f"{gambeson} run --intra-host sealed --json --"
    program = f'{mpi.python} -c "{SUM}"'
    script = tmp_path / "job.sh"
    script.write_text(
        f"#!/bin/sh\n{ours} srun --mpi=pmi2 {program}\n{ours} {' '.join(mpi.mpiexec)} -n 2 {program}\necho done $?\n"
    )
    output = tmp_path / "output"
    cluster.run(["sbatch", "-N1", "-n2", "-w", cluster.nodes[1], "-o", output, script]).check()
    deadline = time.monotonic() + 60
    while "done" not in (said := output.read_text() if output.exists() else "") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "done 0" in said and said.count("sum 3") == 4 and said.count('"rank": 1,') == 2, said


@pytest.mark.mpis("mpich")
def test_a_prolog_that_takes_variables_away(cluster: Slurm, gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    """A site's prolog of tasks may take variables away, and no rank could say so: they come by the command line."""
    prolog = tmp_path / "prolog"
    names = ("LD_PRELOAD", "GAMBESON_JOB", "FI_PROVIDER", "FI_PROVIDER_PATH")
    prolog.write_text("#!/bin/sh\n" + "".join(f"echo unset {name}\n" for name in names))
    prolog.chmod(0o755)
    # A library that a prolog brings stays.
    prolog.write_text(prolog.read_text() + "echo export LD_PRELOAD=/nonexistent/site.so\n")
    job = sealed(cluster, gambeson, mpi, [mpi.python, "-c", SUM], f"--task-prolog={prolog}")
    assert job.stdout.count("sum 3") == 2 and "site.so" in job.stderr, job.describe()


def test_hosts_that_nobody_knows_before(cluster: Slurm, gambeson: Path) -> None:
    own, other = cluster.nodes
    for options in (["-n2"], ["-w", own], [f"-N1-2 -w{own}"], ["-N1", "-w", own, "--jobid=1"]):
        job = run(cluster, gambeson, ["srun", *options, "echo", "started"])
        refused(job, "srun chooses the hosts of this job when it runs", "srun -N 1 -w ")
        assert "started" not in job.stdout, job.describe()
    job = run(cluster, gambeson, ["srun", "-N1", "-w", other, "echo", "started"])
    refused(job, f"the job uses other hosts ({other})", "use the MPI's own mpiexec inside the allocation")


@pytest.mark.mpis("mpich")
def test_allocations(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    own, other = cluster.nodes
    elsewhere = ["salloc", "-Q", "-N1", "-w", other]
    job = run(cluster, gambeson, [*mpi.mpiexec, "true"], prefix=elsewhere, env={"GAMBESON_SSH": "/nonexistent/ssh"})
    refused(job, f"the job uses other hosts ({other})", "/nonexistent/ssh was not found")
    job = run(cluster, gambeson, ["srun", "true"], prefix=["salloc", "-Q", "-N2"])
    refused(job, f"the job uses other hosts ({own},{other})", "use the MPI's own mpiexec inside the allocation")
    # The allocation is held to this host, and what runs there says why it is refused.
    for prefix in (["salloc", "-Q", "-N1", "-w", own], ["salloc", "-Q", "-N2"]):
        job = run(cluster, gambeson, ["srun", "-N1", "-w", own, "-n1", "echo", "started"], prefix=prefix)
        assert job.status == 0 and job.stdout == "started\n", job.describe()
        assert "note: no process of this job started MPI" in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_environment_that_srun_keeps_to_itself(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    job = sealed(cluster, gambeson, mpi, [mpi.python, "-c", SUM], "--export=NONE")
    assert job.stdout.count("sum 3") == 2, job.describe()


@pytest.mark.mpis("mpich")
def test_a_program_in_the_working_directory(cluster: Slurm, gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    """srun finds it without a path, before those in PATH."""
    program = tmp_path / "true"
    program.write_text("#!/bin/sh\necho this one\n")
    program.chmod(0o755)
    job = run(cluster, gambeson, [*srun(cluster, mpi, f"--chdir={tmp_path}"), "true"])
    assert job.status == 0 and job.stdout.count("this one") == 2, job.describe()
    job = run(cluster, gambeson, [*srun(cluster, mpi), "no-such-program"])
    assert job.status == 69 and "no-such-program cannot be started" in job.stderr, job.describe()


def test_programs_that_a_file_names(cluster: Slurm, gambeson: Path) -> None:
    job = run(cluster, gambeson, ["srun", "-N1", "-w", cluster.nodes[0], "--multi-prog", "programs.conf"])
    refused(job, '"--multi-prog" lets a file say what the ranks run', "chooses by SLURM_PROCID")


def test_a_directory_that_the_ranks_cannot_see(cluster: Slurm, gambeson: Path) -> None:
    """As where Slurm gives each job a /dev/shm of its own."""
    alone = ["unshare", "--mount", "--", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
    job = cluster.run([*alone, gambeson, "run", "--", "srun", "-N1", "-w", cluster.nodes[0], "echo", "started"])
    refused(job, "cannot be read on", "call `gambeson run` inside the job (sbatch)")
    assert "started" not in job.stdout, job.describe()


@pytest.mark.mpis("mpich", "openmpi")
def test_doctor(cluster: Slurm, gambeson: Path, mpi: Mpi) -> None:
    job = cluster.run([gambeson, "doctor", "--", *srun(cluster, mpi), mpi.python, "-c", SUM]).check()
    assert "slurm" in job.stdout and f"to judge by {mpi.bin / 'mpiexec'}" in job.stdout, job.describe()
    assert "loads the provider" in job.stdout, job.describe()


def test_without_a_configuration_or_srun(cluster: Slurm, gambeson: Path) -> None:
    empty = cluster.folder / "empty.conf"
    empty.touch()
    job = cluster.run([gambeson, "run", "--", "srun", "true"], env={"SLURM_CONF": str(empty)})
    refused(job, 'srun did not answer `--version` (it says "srun: ', "see first that it works by itself")
    job = cluster.run([gambeson, "run", "--", "srun", "true"], env={"PATH": "/nonexistent"})
    assert job.status == 69 and "srun was not found; give the path of Slurm's srun" in job.stderr, job.describe()


@pytest.mark.long
def test_no_controller(cluster: Slurm, gambeson: Path) -> None:
    """srun says it, after its own patience."""
    dead = cluster.folder / "dead.conf"
    text = Path(cluster.env["SLURM_CONF"]).read_text()
    dead.write_text(re.sub("(?m)^(SlurmctldPort|MessageTimeout)=.*", r"\1=2", text))
    job = run(cluster, gambeson, ["srun", "-N1", "-w", cluster.nodes[0], "true"], env={"SLURM_CONF": str(dead)})
    assert job.status == 1 and "Unable to contact slurm controller" in job.stderr, job.describe()
