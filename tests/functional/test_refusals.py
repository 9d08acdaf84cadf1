"""Each way in which a job could run unsealed: it ends, with its own sentence of cause and remedy."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import Mpi, Unavailable, clean_environment, find
from harness.programs import Programs

REFUSED = 70
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to show one rank another file")


def run(
    gambeson: Path,
    mpi: Mpi,
    program: Sequence[str],
    *options: str,
    mpiexec_options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Job:
    command = [str(gambeson), "run", "-q", "--intra-host", "sealed", *options, "--"]
    command += [*mpi.mpiexec, *mpiexec_options, "-n", "2", *program]
    return run_marked(command, env={**clean_environment(), **mpi.common, **(env or {})}, timeout=timeout, cwd=cwd)


def start(mpi: Mpi, programs: Programs) -> list[str]:
    return [mpi.python, str(programs.path("start.py"))]


def refused(job: Job, *parts: str) -> None:
    """The job ended with status 70 and a sentence with all these parts, before any rank said a word."""
    assert not job.timed_out, job.describe()
    assert job.status == REFUSED, f"status {job.status}\n{job.describe()}"
    for part in parts:
        assert part in job.stderr, f"no {part!r} in\n{job.describe()}"
    assert "started" not in job.stdout, job.describe()
    assert not job.survivors, job.describe()


@pytest.fixture
def installation(gambeson: Path, tmp_path: Path) -> Path:
    """A copy of what is installed, to take pieces away from."""
    release = gambeson.resolve().parent
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gambeson", "libgambeson_fi.so", "libgambeson_guard.so", "libgambeson_mpi.so", "gambeson-fabric-info"):
        shutil.copy2(release / name, folder / name)
    return folder


def test_missing_provider(installation: Path, mpi: Mpi, programs: Programs) -> None:
    (installation / "libgambeson_fi.so").unlink()
    job = run(installation / "gambeson", mpi, start(mpi, programs))
    refused(job, "Gambeson's provider libgambeson-fi.so is in none of", "run `make build`, or install Gambeson again")


def test_missing_guard(installation: Path, mpi: Mpi, programs: Programs) -> None:
    (installation / "libgambeson_guard.so").unlink()
    job = run(installation / "gambeson", mpi, start(mpi, programs))
    refused(job, "Gambeson's guard libgambeson-guard.so is in none of", "run `make build`, or install Gambeson again")


def test_provider_that_is_none(installation: Path, mpi: Mpi, programs: Programs) -> None:
    empty = installation / "empty.c"
    empty.write_text("int nothing;\n")
    library = str(installation / "libgambeson_fi.so")
    subprocess.run(["cc", "-shared", "-fPIC", str(empty), "-o", library], check=True)
    job = run(installation / "gambeson", mpi, start(mpi, programs))
    refused(job, "started MPI, whose libfabric never opened Gambeson's provider", "rank ", "gambeson doctor")


@needs_root
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("damaged", "can't be had: it is damaged"),
        ("foreign", "can't be had: it is not a Gambeson credential"),
        ("later-version", "can't be had: it is a credential of version 2, and this build knows version 1"),
        ("held-by-another", "can't be had: it is held by user 65534 and this process runs as user 0"),
    ],
)
def test_unusable_credential(gambeson: Path, mpi: Mpi, programs: Programs, how: str, cause: str) -> None:
    wrapper = [mpi.python, str(programs.path("other_job.py")), how]
    job = run(gambeson, mpi, [*wrapper, *start(mpi, programs)])
    refused(job, cause, "start the program with `gambeson run`", "because of rank 1 on ")


@needs_root
def test_provider_of_another_version(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    wrapper = [mpi.python, str(programs.path("other_job.py")), "other-gambeson"]
    job = run(gambeson, mpi, [*wrapper, *start(mpi, programs)])
    [ours] = re.findall(r"gambeson (\S+)", subprocess.check_output([gambeson, "--version"], text=True))
    cause = f"the provider here is of Gambeson {ours}, and the job was started by Gambeson 9{ours}"
    refused(job, cause, "install the same Gambeson, all of it, on every host", "because of rank 1 on ")


def test_another_host_with_another_gambeson(gambeson: Path) -> None:
    """What the agent hears over ssh from a host whose Gambeson is of another version."""
    name, content = b"version", b"9.9.9"
    sent = b"GBSNFIL1" + struct.pack(f">IH{len(name)}sI", 1, len(name), name, len(content)) + content
    done = subprocess.run([gambeson, "keep"], input=sent, capture_output=True, timeout=60, check=False)
    assert done.returncode == REFUSED and done.stdout == b""
    assert b"the job was started by Gambeson 9.9.9; use the same Gambeson on all hosts" in done.stderr


@needs_root
def test_out_of_locked_memory_where_keys_may_be_swapped(
    gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    """The limit holds for the ranks alone; without a swap area nothing is lost, and nothing is said."""
    swaps = tmp_path / "swaps"
    script = f"mount --make-rprivate / && mount --bind {swaps} /proc/swaps && ulimit -l 0"
    script += ' && exec setpriv --bounding-set -ipc_lock --inh-caps -all "$@"'
    for area in ("", "/dev/nosuch partition 1048572 0 -2\n"):
        swaps.write_text(f"Filename Type Size Used Priority\n{area}")
        job = run(gambeson, mpi, ["unshare", "-m", "bash", "-c", script, "sh", *start(mpi, programs)]).check()
        assert job.stdout.count("started") == 2
        cause = "keys can't all be locked into memory (the limit of locked memory is too low) and this host swaps"
        for part in (cause, "raise `ulimit -l`, or use encrypted swap"):
            assert (part in job.stderr) == bool(area), job.describe()


@needs_root
def test_wrong_secret(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    wrapper = [mpi.python, str(programs.path("other_job.py")), "other-secret"]
    job = run(gambeson, mpi, [*wrapper, *start(mpi, programs)])
    refused(job, "it does not carry this job's proof", "start all processes with one `gambeson run`")


def test_missing_secret(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    script = 'rm -f "$GAMBESON_JOB/secrets"; exec "$@"'
    job = run(gambeson, mpi, ["bash", "-c", script, "sh", *start(mpi, programs)])
    refused(
        job, "can't be had: nobody holds it here (No such file or directory", "start the program with `gambeson run`"
    )


@needs_root
def test_policy_mismatch(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "gambeson.toml").write_text('gap_timeout = "2 s"\n')
    wrapper = [mpi.python, str(programs.path("other_job.py")), "other-policy"]
    exchange = [mpi.python, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); print('started')"]
    job = run(gambeson, mpi, [*wrapper, *exchange], cwd=tmp_path)
    refused(job, "made under another policy (start all ranks from one `gambeson run`)")


def test_core_provider_absent(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    job = run(gambeson, mpi, start(mpi, programs), "--core", "nosuch")
    refused(job, "the core provider nosuch of libfabric", "choose another with `gambeson run --core NAME`")


@pytest.mark.parametrize(
    ("core", "cause"),
    [
        ("shm", "its addresses are no IP addresses, which are all that a card can hold"),
        ("udp", "it has no reliable datagram endpoint for plain messages"),
    ],
)
@pytest.mark.mpis("mpich", "openmpi")
def test_core_that_does_not_fit(gambeson: Path, mpi: Mpi, programs: Programs, core: str, cause: str) -> None:
    """An address of another kind is longer than what FI_NAME_MAX leaves beside a key and a proof."""
    job = run(gambeson, mpi, start(mpi, programs), "--core", core)
    refused(job, f"the core provider {core} of libfabric", cause, "choose another with `gambeson run --core NAME`")


@pytest.mark.mpis("openmpi")
def test_layered_core(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    job = run(gambeson, mpi, start(mpi, programs), "--core", "tcp;ofi_rxm").check()
    assert job.stdout.count("started") == 2


def test_core_that_names_no_provider(gambeson: Path, mpi: Mpi) -> None:
    job = run(gambeson, mpi, ["true"], "--core", "../evil")
    assert job.status == 64
    assert "--core ../evil names no provider of libfabric; write for example --core tcp" in job.stderr


def test_planted_policy_file(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    planted = tmp_path / "gambeson.toml"
    planted.write_text('protection = "none"\n')
    planted.chmod(0o666)
    job = run(gambeson, mpi, start(mpi, programs), cwd=tmp_path)
    refused(job, "the policy gambeson.toml can be written by others (mode 0666)", "chmod go-w it")


def test_planted_policy_that_only_we_can_write_has_no_effect(
    gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "gambeson.toml").write_text('protection = "none"\nintra_host = "mpi"\n')
    report = tmp_path / "report.json"
    job = run(gambeson, mpi, start(mpi, programs), f"--json={report}", cwd=tmp_path).check()
    assert job.stdout.count("started") == 2
    assert '"records_plain": 0' in report.read_text() and '"records_plain": 1' not in report.read_text()


def test_unreadable_policy(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    job = run(gambeson, mpi, ["true"], "--policy", str(tmp_path / "none.toml"))
    refused(job, "none.toml cannot be read (No such file", "make it readable for you, or name another one")


@pytest.mark.parametrize(
    ("mode", "content", "cause"),
    [
        (0o644, b"a" * 32, "is open to others (owner"),
        (0o600, b"short", "holds neither 32 bytes nor 64 hexadecimal digits"),
        (None, b"", "cannot be read (No such file"),
    ],
)
@pytest.mark.mpis("mpich")
def test_unusable_partition_secret(
    gambeson: Path, mpi: Mpi, tmp_path: Path, mode: int | None, content: bytes, cause: str
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[partition]]\nname = "clinic"\nhosts = ["h1"]\nsecret_file = "clinic.secret"\n')
    if mode is not None:
        (tmp_path / "clinic.secret").write_bytes(content)
        (tmp_path / "clinic.secret").chmod(mode)
    job = run(gambeson, mpi, ["true"], "--policy", str(policy))
    refused(job, f'the secret of partition "clinic", {tmp_path}/clinic.secret (named at {policy}:1)', cause)


def test_policy_stronger_than_the_command_line(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "gambeson.toml").write_text('intra_host = "sealed"\n')
    command = [str(gambeson), "run", "--intra-host", "mpi", "--", *mpi.mpiexec, "-n", "1", "true"]
    job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60, cwd=tmp_path)
    refused(job, '--intra-host mpi asks for less than the policy, which says intra_host = "sealed"; leave the option')


CONTRADICTIONS = {
    "mpich": [
        (["-genv", "FI_PROVIDER", "tcp"], '"-genv FI_PROVIDER tcp" would lead messages past the provider'),
        (["-genv", "MPIR_CVAR_CH4_NETMOD=ucx"], '"-genv MPIR_CVAR_CH4_NETMOD=ucx" would lead messages past'),
        (["-genvnone"], '"-genvnone" keeps from the ranks what they need'),
        (["-env", "LD_PRELOAD", "x.so"], "set LD_PRELOAD in the environment of `gambeson run` instead"),
    ],
    "intel": [
        (["-genv", "I_MPI_FABRICS", "shm:tcp"], '"-genv I_MPI_FABRICS shm:tcp" would lead messages past'),
        (["-genvexcl", "FI_PROVIDER"], '"-genvexcl FI_PROVIDER" keeps from the ranks what they need'),
    ],
    "openmpi": [
        (["--mca", "pml", "ob1"], '"--mca pml ob1" would lead messages past the provider (sealing needs --mca pml cm)'),
        (["--mca", "btl", "tcp,self"], '"--mca btl tcp,self" would lead messages past the provider'),
        (["-x", "FI_PROVIDER=tcp"], '"-x FI_PROVIDER=tcp" would lead messages past the provider'),
    ],
    "debian-openmpi": [
        (["--mca", "pml", "ucx"], '"--mca pml ucx" would lead messages past the provider'),
        (["--mca", "osc", "rdma"], '"--mca osc rdma" would lead messages past the provider'),
    ],
}


@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_contradicting_options(gambeson: Path, mpi: Mpi) -> None:
    for options, sentence in CONTRADICTIONS[mpi.name]:
        refused(run(gambeson, mpi, ["true"], mpiexec_options=options), sentence, "remove it")


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("FI_PROVIDER", "verbs", "--core verbs"),
        ("MPIR_CVAR_CH4_NETMOD", "ucx", "unset MPIR_CVAR_CH4_NETMOD"),
        ("I_MPI_FABRICS", "shm:tcp", "unset I_MPI_FABRICS"),
        ("OMPI_MCA_pml", "ob1", "unset OMPI_MCA_pml"),
    ],
)
def test_contradicting_environment(gambeson: Path, mpi: Mpi, variable: str, value: str, remedy: str) -> None:
    owner = {"MPIR": "mpich", "I_MP": "intel", "OMPI": "openmpi"}.get(variable[:4], mpi.name)
    if mpi.name != owner:
        pytest.skip(f"{variable} is {owner}'s")
    job = run(gambeson, mpi, ["true"], env={variable: value})
    refused(job, f"the environment says {variable}={value}, which would lead messages past the provider", remedy)


@pytest.mark.mpis("mpich", "intel")
def test_options_in_a_file_are_found_by_the_guard(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    options = tmp_path / "options"
    options.write_text(f"-env FI_PROVIDER tcp -n 2 {' '.join(start(mpi, programs))}\n")
    command = [str(gambeson), "run", "-q", "--", *mpi.mpiexec, "-configfile", str(options)]
    job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60)
    refused(job, 'FI_PROVIDER is "tcp", and sealing needs "gambeson"', "Remove what changes FI_PROVIDER")


def test_program_that_drops_the_provider(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    job = run(gambeson, mpi, ["env", "-u", "FI_PROVIDER", *start(mpi, programs)])
    refused(job, "FI_PROVIDER is not set, and sealing needs", "Remove what changes FI_PROVIDER", "rank 0 on ")


def test_program_that_drops_one_ranks_provider(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
    script = f'[ "{rank}" = 1 ] && export FI_PROVIDER=tcp; exec "$@"'
    job = run(gambeson, mpi, ["bash", "-c", script, "sh", *start(mpi, programs)])
    refused(job, "is stopped, because its messages would not be sealed", "because of rank 1 on ")


@pytest.mark.mpis("mpich", "openmpi")
def test_mpiexec_of_another_mpi(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    """The ranks' MPI finds settings that are not for it, or can't start at all."""
    try:
        other = find("debian-openmpi" if mpi.name == "mpich" else "mpich")
    except Unavailable as reason:
        pytest.skip(str(reason))
    job = run(gambeson, mpi, start(other, programs), env=other.common)
    refused(job, "Start the program with the mpiexec of its own MPI")


@pytest.mark.mpis("openmpi")
def test_windows_without_a_sealed_way(gambeson: Path, mpi: Mpi, programs: Programs) -> None:
    job = run(gambeson, mpi, [mpi.python, str(programs.path("window.py"))])
    refused(
        job, "the program makes a window, and Open MPI 5 moves one-sided data", "Use MPICH, Intel MPI or Open MPI 4"
    )


def test_mpiexec_not_found(gambeson: Path, tmp_path: Path) -> None:
    command = [str(gambeson), "run", "--", "mpiexec.none", "-n", "2", "true"]
    job = run_marked(command, env=clean_environment(), timeout=60)
    assert job.status == 69
    assert "mpiexec.none was not found; give the path of mpiexec, or load the module of your MPI first" in job.stderr


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_unknown_mpiexec(gambeson: Path, tmp_path: Path) -> None:
    strange = script(tmp_path / "mpiexec", "echo Some other MPI 1.0")
    job = run_marked([str(gambeson), "run", "--", strange, "-n", "2", "true"], env=clean_environment(), timeout=60)
    refused(job, "says nothing of an MPI known here", "put `gambeson run --` directly in front of the mpiexec of MPICH")


def test_a_script_around_mpiexec_is_not_started(gambeson: Path, tmp_path: Path) -> None:
    program = script(tmp_path / "simulation", f"[ $1 = --version ] || {{ touch {tmp_path}/ran; mpiexec -n 2 true; }}")
    job = run_marked([str(gambeson), "run", "--", program, "1"], env=clean_environment(), timeout=60)
    refused(job, "says nothing of an MPI known here", "put `gambeson run --` directly in front of the mpiexec")
    assert not (tmp_path / "ran").exists()


def test_mpi_that_is_too_old(gambeson: Path, tmp_path: Path) -> None:
    old = script(tmp_path / "mpiexec", "echo 'mpiexec (Open MPI) 3.1.6'")
    job = run_marked([str(gambeson), "run", "--", old, "-n", "2", "true"], env=clean_environment(), timeout=60)
    refused(job, "Open MPI 4 or later")


def test_other_hosts_without_ssh(gambeson: Path, mpi: Mpi) -> None:
    option = "-H" if mpi.is_openmpi else "-hosts"
    job = run(gambeson, mpi, ["true"], mpiexec_options=[option, "192.0.2.7"], env={"GAMBESON_SSH": "/nonexistent/ssh"})
    refused(job, "the job uses other hosts (192.0.2.7)", "/nonexistent/ssh was not found; install ssh, or name yours")


@pytest.mark.mpis("mpich")
def test_other_hosts_by_another_carrier(gambeson: Path, mpi: Mpi) -> None:
    job = run(gambeson, mpi, ["true"], mpiexec_options=["-hosts", "192.0.2.7", "-launcher", "slurm"])
    refused(job, '"-launcher slurm" chooses another way than ssh; remove it')


def test_srun_over_several_hosts(gambeson: Path, tmp_path: Path) -> None:
    srun = script(tmp_path / "srun", "echo slurm 22.05.8")
    env = {**clean_environment(), "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    job = run_marked([str(gambeson), "run", "--", srun, "-n", "2", "true"], env=env, timeout=60)
    refused(job, "the job uses other hosts (n[1-2])", "use the MPI's own mpiexec inside the allocation")


def test_other_host_without_gambeson(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    ssh = script(tmp_path / "ssh", "echo 'sh: gambeson: not found' >&2; exit 127")
    option = "-H" if mpi.is_openmpi else "-hosts"
    job = run(gambeson, mpi, ["echo", "started"], mpiexec_options=[option, "192.0.2.7"], env={"GAMBESON_SSH": ssh})
    assert job.status != 0 and "started" not in job.stdout, job.describe()
    assert "the job's secret cannot be carried to 192.0.2.7: Gambeson did not answer there" in job.stderr
    assert "Install the same Gambeson there under the same path" in job.stderr


def test_killed_rank(gambeson: Path, mpi: Mpi) -> None:
    program = (
        "import os; from mpi4py import MPI; world = MPI.COMM_WORLD; world.Barrier();"
        " world.rank and os.kill(os.getpid(), 9); world.recv()"
    )
    command = [str(gambeson), "run", "--intra-host", "sealed", "--", *mpi.mpiexec, "-n", "2", mpi.python, "-c", program]
    job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60)
    assert not job.timed_out and job.status != 0, job.describe()
    assert not job.survivors, job.describe()
    assert "rank 1 on " in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_no_memory_for_the_secret(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to take /dev/shm away")
    hide = f'mount --make-rprivate / && mount --bind {tmp_path} /dev/shm && exec "$@"'
    command = ["unshare", "-m", "bash", "-c", hide, "sh", str(gambeson), "run", "--", *mpi.mpiexec, "-n", "1", "true"]
    job = run_marked(command, env={**clean_environment(), **mpi.common}, timeout=60)
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True)
    if kind.stdout.strip() == "tmpfs":
        pytest.skip("the tests' own folder is in memory")
    refused(job, "/dev/shm is no tmpfs, so there is no place in memory for the job's secret; mount one")
