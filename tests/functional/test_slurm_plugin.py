"""`gambeson run -- srun` over several hosts of a real Slurm: the plug-in takes the job's secret there."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
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
PROGRAMS = ROOT / "tests" / "programs"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
CANARY = "CANARY-IN-A-MESSAGE"
SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(f'sum {w.allreduce(w.rank + 1)}', flush=True)"
WAIT = f"""
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
# srun sends command lines in clear: the words are put together here.
canary = "-".join({CANARY.split("-")}) * 64
assert world.sendrecv(canary, dest=1 - world.rank, source=1 - world.rank) == canary
sys.path.insert(0, "{PROGRAMS}")
import ask
with open(f"{{sys.argv[1]}}-credential-{{world.rank}}", "wb") as file:
    file.write(ask.given("credential"))
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


def run(cluster: SlurmHosts, gambeson: Path, mpi: Mpi, program: str = SUM, prefix: Sequence[str] = ()) -> Job:
    own: list[str | Path] = [gambeson, "run", f"--json={cluster.folder / 'report.json'}"]
    command = [*prefix, *own, "--", *srun(mpi), program]
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
    program = f'{mpi.python} -c "{SUM}"'
    script, output = tmp_path / "job.sh", tmp_path / "output"
    script.write_text(f"#!/bin/sh\n{ours} {program} & {ours} --export=NONE {program} & wait\n")
    cluster.run(["sbatch", "-W", "-N2", "-n2", "-o", output, script], env=environment(mpi)).check()
    said = output.read_text()
    assert said.count("sum 3") == 4 and said.count('"host": "h3",') == 2, said
    job = run(cluster, gambeson, mpi, prefix=["salloc", "-Q", "-N2"])
    assert job.status == 0 and job.stdout.count("sum 3") == 2, job.describe()


def test_status_of_the_program(cluster: SlurmHosts, gambeson: Path) -> None:
    """Of a step on one host of an allocation of two."""
    step = ["srun", "-N1", "-n1", "-w", "h3", "sh", "-c", "exit 7"]
    command: list[str | Path] = ["salloc", "-Q", "-N2", gambeson, "run", "--", *step]
    job = cluster.run(command)
    assert job.status == 7 and "refused" not in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_a_rank_that_must_not_run(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    program = f"import os; os.environ['SLURM_PROCID'] == '1' and os.environ.update(FI_PROVIDER='tcp'); {SUM}"
    refused(run(cluster, gambeson, mpi, program=program), 'FI_PROVIDER is "tcp"', "because of rank 1 on h3:")


@pytest.mark.mpis("mpich")
def test_nothing_is_seen(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """Neither on a cable, nor in a process's environment or command line, nor in what Slurm writes down."""
    # Without room the kernel drops what is long.
    options = ["-U", "--immediate-mode", "-s", "0", "-B", "65536"]
    tap = ["tcpdump", "-i", "any", *options, "-w", f"{cluster.folder}/cables.pcap"]
    switch = ["ip", "netns", "exec", cluster.network.switch]
    with subprocess.Popen([*switch, *tap], stderr=subprocess.PIPE, text=True) as capture:
        assert capture.stderr is not None and any("listening on" in said for said in capture.stderr)
        with running(cluster, gambeson, mpi) as (job, end):
            (directory,) = list(cluster.inside("h1", "/dev/shm").glob("gambeson-*"))
            named = {"GAMBESON_JOB": f"/dev/shm/{directory.name}"}
            ranks = [Path(f"{end}-credential-{rank}") for rank in (0, 1)]
            secret, other = [rank.read_bytes()[26:58] for rank in ranks]
            assert len(secret) == 32 and secret == other
            for rank in ranks:
                rank.unlink()
            seen = b"".join(
                file(name, each).encode("latin-1") for each in processes() for name in ("environ", "cmdline")
            )
            asks: list[str | Path] = [mpi.python, PROGRAMS / "ask.py", "credential"]
            for host in ("h2", "h3"):
                # Another user, as whom a step of his own runs there.
                looks = [*NOBODY, "ls", f"/dev/shm/{directory.name}"]
                assert "Permission denied" in cluster.run(looks, host=host).stderr
                # The same user: from outside of Slurm, as over ssh, and in another step.
                step: list[str | Path] = ["srun", "-w", host, *asks]
                for said in (cluster.run(asks, host=host, env=named), cluster.run(step, env=named)):
                    assert "was not started by this job" in said.stderr and said.stdout == "", said.describe()
            end.touch()
            assert job.wait(20) == 0, (cluster.folder / "output").read_text()
        capture.terminate()
    written = [path for path in cluster.folder.rglob("*") if path.is_file() and path.suffix != ".pcap"]
    places = {"processes": seen, "cables": (cluster.folder / "cables.pcap").read_bytes()}
    places |= {str(path): path.read_bytes() for path in written if path.name != "munge.key"}
    # That it would be found if it were there: Slurm sends its environment in clear.
    assert b"SLURM_GAMBESON=MUNGE:" in places["cables"] and directory.name.encode() in places["cables"]
    for where, what in places.items():
        for word in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert word not in what, f"the job's secret is in {where}"
        assert CANARY.encode() not in what, f"the message is in {where}"


def test_a_credential_of_another(cluster: SlurmHosts) -> None:
    """Who has seen one on the way can do nothing with it: it is for one step, once on each host, and its user's."""
    asks = ["srun", "-w", "h2", "sh", "-c", "echo $GAMBESON_REFUSED; ls /dev/shm; env | grep -c SLURM_GAMBESON"]
    step = "GBSNSLM1" + "\\0" * 8 + "files"

    def said(credential: str) -> str:
        job = cluster.run(asks, env={"SLURM_GAMBESON": credential})
        assert job.stdout.endswith("\n0\n") and "gambeson-" not in job.stdout, job.describe()
        return job.stdout

    def seal(*options: str, prefix: Sequence[str] = (), text: str = step) -> str:
        line = f"printf '{text}' | munge {' '.join(options)}"
        return cluster.run([*prefix, "sh", "-c", line]).check().stdout.strip()

    assert "sealed for another step" in said(seal("-u", "0"))
    assert "sealed by user 65534, and this step is user 0's" in said(seal("-u", "0", prefix=NOBODY))
    assert "another version of this plug-in" in said(seal(text="GBSNSLM0"))
    assert "(Unauthorized credential)" in said(seal("-u", "65534"))
    once = seal("-u", "0")
    assert "another step" in said(once) and "(Replayed credential)" in said(once)


@pytest.mark.mpis("mpich")
def test_one_that_was_captured(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """A user sends what passed on a cable in a step of his own."""
    cables = (cluster.folder / "cables.pcap").read_bytes()
    found = re.search(rb"SLURM_GAMBESON=(MUNGE:[A-Za-z0-9+/=]{200,}:)", cables)
    assert found is not None, "the test before this one captures"
    command = ["srun", "-N2", "-n2", "sh", "-c", "echo $GAMBESON_REFUSED; ls /dev/shm"]
    job = cluster.run(command, env={"SLURM_GAMBESON": found[1].decode()})
    assert job.stdout.count("(Replayed credential)") == 2 and "gambeson-" not in job.stdout, job.describe()


@pytest.mark.mpis("mpich")
def test_doctor(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    job = cluster.run([gambeson, "doctor", "--", *srun(mpi), SUM]).check()
    assert "has Gambeson's plug-in" in job.stdout, job.describe()
    assert "those that srun chooses; the secret goes there by Gambeson's plug-in for Slurm" in job.stdout, (
        job.describe()
    )


@pytest.mark.mpis("mpich")
def test_without_the_plugin(cluster: SlurmHosts, gambeson: Path, plugin: Path, mpi: Mpi) -> None:
    cluster.plugin("")
    refused(run(cluster, gambeson, mpi), "srun chooses the hosts", "ask the administrator for Gambeson's plug-in")
    job = run(cluster, gambeson, mpi, prefix=["salloc", "-Q", "-N2"])
    refused(job, "the job uses other hosts (h[2-3])", "Gambeson's plug-in for Slurm, of this version, is not in it")
    # Where users log in it is there, and on the nodes it is not.
    (cluster.folder / "login-plugstack.conf").write_text(line(plugin, gambeson))
    text = (cluster.folder / "slurm.conf").read_text()
    (cluster.folder / "login.conf").write_text(text.replace("plugstack.conf", "login-plugstack.conf"))
    job = run(cluster, gambeson, mpi, prefix=["env", f"SLURM_CONF={cluster.folder / 'login.conf'}"])
    refused(job, "see that slurmd there has Gambeson's plug-in for Slurm", "did not arrive there")


@pytest.mark.mpis("mpich")
def test_without_munge_or_gambeson(cluster: SlurmHosts, gambeson: Path, plugin: Path, mpi: Mpi) -> None:
    cluster.plugin(line(plugin, Path("/nonexistent/gambeson")))
    refused(run(cluster, gambeson, mpi), "/nonexistent/gambeson cannot be started", "the job's secret is not on h2")
    cluster.plugin(line(plugin, gambeson, "munge=/nonexistent"))
    refused(run(cluster, gambeson, mpi), "munged of this host did not encrypt", "because of srun:")
    # On one of the nodes alone: slurmd there has another way to its munged.
    cluster.plugin(line(plugin, gambeson, "munge=/run/munge/link"))
    for host in ("h1", "h2"):
        cluster.run(["ln", "-s", "munge.socket.2", "/run/munge/link"], host=host).check()
    refused(run(cluster, gambeson, mpi), "the job's secret is not on h3", "munged of this host did not open")


@pytest.mark.mpis("mpich")
def test_a_host_that_cannot_report(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """A firewall that lets srun's own ports through and no others."""
    rules = (
        "table inet test {\n chain out {\n type filter hook output priority 0\n"
        " ip daddr 10.77.0.1 tcp dport != { 6817, 60001-60100 } ct state new reject with tcp reset\n }\n}\n"
    )
    text = (cluster.folder / "slurm.conf").read_text()
    (cluster.folder / "ports.conf").write_text(text + "SrunPortRange=60001-60100\n")
    inside = ["ip", "netns", "exec", cluster.network.namespace("h3"), "nft"]
    subprocess.run([*inside, "-f", "-"], input=rules, text=True, check=True)
    try:
        job = run(cluster, gambeson, mpi, prefix=["env", f"SLURM_CONF={cluster.folder / 'ports.conf'}"])
    finally:
        subprocess.run([*inside, "delete", "table", "inet", "test"], check=True)
    refused(job, "the job's secret is not on h3", "this host does not reach `gambeson run`")


@pytest.mark.mpis("mpich")
def test_ends(cluster: SlurmHosts, gambeson: Path, mpi: Mpi) -> None:
    """However a job ends, nothing of it is left on the nodes."""
    with running(cluster, gambeson, mpi) as (job, _):
        cluster.run(["scancel", "--signal=KILL", "--user=root"]).check()
        assert job.wait(30) != 0
    assert left(cluster) == {}
    with running(cluster, gambeson, mpi) as (job, _):
        # Its slurmstepd is killed, and with it whoever could clear up; the stream to the keeper ends.
        for process in processes():
            if file("cmdline", process).startswith("slurmstepd: [") and cluster.has("h3", process):
                os.kill(int(process.name), 9)
        cluster.run(["scancel", "--user=root"])
        assert job.wait(60) != 0
    assert left(cluster) == {}
    with running(cluster, gambeson, mpi) as (job, _):
        job.kill()
        job.wait(10)
    # What `gambeson run` itself had is cleared by the next one.
    until(lambda: not {"h2", "h3", "keepers"} & left(cluster, 0).keys())
    assert run(cluster, gambeson, mpi).status == 0
