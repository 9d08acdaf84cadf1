"""`gambeson run -- srun` over several hosts of a real Slurm, to which the plug-in takes the job's secret (docs/slurm.md)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from conftest import unavailable
from harness import mpis
from harness.jobs import Job
from harness.mpis import ROOT, Mpi
from harness.slurm_hosts import SlurmHosts, slurm_hosts

pytestmark = [pytest.mark.namespaces]

REFUSED = 70
PMI = {"mpich": "pmi2", "openmpi": "pmix", "intel": "pmi2"}
CANARY = "CANARY-IN-A-MESSAGE"
SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(f'sum {w.allreduce(w.rank + 1)}', flush=True)"
WAIT = f"""
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
said = world.sendrecv("{CANARY}" * 64, dest=1 - world.rank, source=1 - world.rank)
assert said == "{CANARY}" * 64
os.write(1, b"exchanged\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in, as an administrator builds it."""
    if not Path("/usr/include/slurm/spank.h").exists() or not Path("/usr/include/munge.h").exists():
        unavailable("libslurm-dev or libmunge-dev is missing: run tools/bootstrap.sh test as root")
    target = tmp_path_factory.mktemp("plugin")
    made = ["make", "-s", "spank", f"CARGO_TARGET_DIR={target}"]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return target / "slurm" / "gambeson_spank.so"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHosts]:
    try:
        with slurm_hosts(tmp_path_factory.mktemp("slurm")) as made:
            yield made
    except mpis.Unavailable as reason:
        unavailable(str(reason))


@pytest.fixture(autouse=True)
def with_plugin(cluster: SlurmHosts, plugin: Path, gambeson: Path) -> Iterator[None]:
    cluster.plugin(line(plugin, gambeson))
    yield
    assert left(cluster) == {}, "the job is over"


def line(plugin: Path, gambeson: Path, *more: str) -> str:
    return " ".join(["optional", str(plugin), f"gambeson={gambeson}", *more]) + "\n"


def srun(mpi: Mpi, *options: str, ranks: int = 2) -> list[str]:
    return ["srun", "-N2", "-n", str(ranks), f"--mpi={PMI[mpi.name]}", *options, mpi.python, "-c"]


def environment(mpi: Mpi) -> dict[str, str]:
    return {**mpi.common, "I_MPI_PMI_LIBRARY": "libpmi2.so.0"} if mpi.name == "intel" else mpi.common


def run(cluster: SlurmHosts, gambeson: Path, mpi: Mpi, *options: str, program: str = SUM, prefix: Sequence[str] = ()) -> Job:
    command = [*prefix, gambeson, "run", "--stats", "--json=report.json", "--", *srun(mpi, *options), program]
    job = cluster.run(command, env=environment(mpi))
    assert not job.timed_out and not job.survivors, job.describe()
    return job


def refused(job: Job, *parts: str) -> None:
    assert job.status == REFUSED and "sum" not in job.stdout, job.describe()
    for part in parts:
        assert part in job.stderr, f"no {part!r} in\n{job.describe()}"


def left(cluster: SlurmHosts, patience_s: float = 10) -> dict[str, list[str]]:
    """What is still there of jobs: files in memory, and who keeps them."""
    deadline = time.monotonic() + patience_s
    while True:
        found = {
            host: [file.name for file in cluster.inside(host, "/dev/shm").iterdir() if file.name.startswith("gambeson")]
            for host in cluster.network.names
        }
        found["keepers"] = [command for command in commands() if "keep\0--step" in command]
        found = {where: what for where, what in found.items() if what}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def commands() -> list[str]:
    return [file("cmdline", process) for process in processes()]


def processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def file(name: str, process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / name).read_bytes().decode("latin-1")
    return ""


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def running(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A job whose two ranks have exchanged a message, and wait for a file."""
    end = cluster.folder / "end"
    end.unlink(missing_ok=True)
    command = [*cluster.on("h1"), str(gambeson), "run", "-q", "--", *srun(mpi), WAIT, str(end)]
    output = cluster.folder / "output"
    with output.open("w") as into:
        job = subprocess.Popen(command, env={**cluster.env, **environment(mpi)}, stdout=into, stderr=into, text=True)
        try:
            until(lambda: output.read_text().count("exchanged") == 2 or job.poll() is not None)
            assert job.poll() is None, output.read_text()
            yield job, end
        finally:
            end.touch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(20)
            job.kill()


@pytest.mark.mpis("mpich", "openmpi", "intel")
def test_ranks_of_two_hosts(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """From a host that is none of the nodes, without a folder that they share for it."""
    job = run(cluster, gambeson, mpi)
    assert job.status == 0 and job.stdout.count("sum 3") == 2, job.describe()
    ranks = json.loads((cluster.folder / "report.json").read_text())["ranks"]
    assert [(rank["rank"], rank["host"]) for rank in ranks] == [(0, "h2"), (1, "h3")], ranks
    assert all(rank["records_sealed"] > 0 and rank["records_plain"] == 0 for rank in ranks), ranks
    assert "other hosts get the job's secret by Gambeson's plug-in for Slurm" in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_batch_script_and_allocation(cluster: SlurmHosts, gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    """Inside a job `gambeson run` is on one of its nodes; each is a job of its own, steps beside each other too."""
    ours = f"{gambeson} run -q --json -- srun --overlap --mpi=pmi2"
    program = f"{mpi.python} -c \"{SUM}\""
    script, output = tmp_path / "job.sh", tmp_path / "output"
    script.write_text(f"#!/bin/sh\n{ours} {program} & {ours} --export=NONE {program} & wait\n")
    cluster.run(["sbatch", "-W", "-N2", "-n2", "-o", output, script], env=environment(mpi)).check()
    said = output.read_text()
    assert said.count("sum 3") == 4 and said.count('"host": "h3",') == 2, said
    job = run(cluster, gambeson, mpi, prefix=["salloc", "-Q", "-N2"])
    assert job.status == 0 and job.stdout.count("sum 3") == 2, job.describe()


@pytest.mark.mpis("mpich")
def test_a_rank_that_must_not_run(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    program = f"import os; os.environ['SLURM_PROCID'] == '1' and os.environ.update(FI_PROVIDER='tcp'); {SUM}"
    refused(run(cluster, gambeson, mpi, program=program), 'FI_PROVIDER is "tcp"', "because of rank 1 on h3:")


@pytest.mark.mpis("mpich")
def test_nothing_is_seen(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """Neither on a cable, nor in a process's environment or command line, nor in what Slurm writes down."""
    tap = ["tcpdump", "-i", "any", "-U", "--immediate-mode", "-s", "0", "-w", str(cluster.folder / "cables.pcap")]
    switch = ["ip", "netns", "exec", cluster.network.switch]
    with subprocess.Popen([*switch, *tap], stderr=subprocess.PIPE, text=True) as capture:
        assert capture.stderr is not None and any("listening on" in said for said in capture.stderr)
        with running(cluster, gambeson, mpi) as (job, end):
            (directory,) = [folder for folder in cluster.inside("h1", "/dev/shm").glob("gambeson-*")]
            credential = (directory / "credential").read_bytes()
            secret = credential[26:58]
            seen = b"".join(file(name, each).encode("latin-1") for each in processes() for name in ("environ", "cmdline"))
            for host in ("h2", "h3"):
                kept = cluster.inside(host, f"/dev/shm/{directory.name}")
                assert secret in (kept / "credential").read_bytes() and kept.stat().st_mode & 0o777 == 0o700
                # Another user, as whom a step of his own runs there.
                other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", f"/dev/shm/{directory.name}"]
                assert "Permission denied" in cluster.run(other, host=host).stderr
            end.touch()
            assert job.wait(20) == 0, (cluster.folder / "output").read_text()
        capture.terminate()
    written = [path for path in cluster.folder.rglob("*") if path.is_file() and path.suffix != ".pcap"]
    places = {"processes": seen, "cables": (cluster.folder / "cables.pcap").read_bytes()}
    places |= {str(path): path.read_bytes() for path in written if path.name != "munge.key"}
    # That it would be found if it were there: Slurm sends its environment in clear.
    assert b"SLURM_GAMBESON=MUNGE:" in places["cables"] and directory.name.encode() in places["cables"]
    for where, what in places.items():
        for word in (secret, secret.hex().encode(), base64.b64encode(secret)[:40]):
            assert word not in what, f"the job's secret is in {where}"
        assert CANARY.encode() not in what or where == "processes", f"the message is in {where}"


@pytest.mark.mpis("mpich")
def test_a_credential_that_was_seen(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """Who has seen one on the way can do nothing with it: it is for one step, once on each host, and its user's."""
    cables = (cluster.folder / "cables.pcap").read_bytes()
    found = re.search(rb"SLURM_GAMBESON=(MUNGE:[A-Za-z0-9+/=]+:)", cables)
    assert found is not None, "test_nothing_is_seen has not captured one"
    stolen = {"SLURM_GAMBESON": found[1].decode()}
    asks = ["sh", "-c", "echo $GAMBESON_REFUSED; ls /dev/shm; env | grep -c SLURM_GAMBESON"]
    own = cluster.run(["srun", "-w", "h2", *asks], env=stolen)
    assert "munged of this host did not open the job's files" in own.stdout and "0" in own.stdout, own.describe()
    assert "Replayed" in own.stdout and "gambeson-" not in own.stdout, own.describe()
    # A munged that has forgotten what it saw, as on a host that the step had no task on.
    sealed = [sys_path for sys_path in ("/usr/bin/munge",) if Path(sys_path).exists()]
    assert sealed
    fresh = cluster.run([*sealed, "--uid=0", "--uid-restriction" if False else "-U0", "-s", "x"])
    if fresh.status == 0:
        other = cluster.run(["srun", "-w", "h3", *asks], env={"SLURM_GAMBESON": fresh.stdout.strip()})
        assert "by another version of this plug-in" in other.stdout, other.describe()
