"""`gambeson run` around jobs without MPI: streams, status, signals, environment, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.hosts import Hosts
from harness.jobs import MARK, NOT_LAUNCHED, Job, end_marked, run_marked
from harness.mpis import Mpi, clean_environment
from harness.programs import ASK, Programs
from programs import ask

REFUSED_BY_HOLDER = 2


def environment(mpi: Mpi) -> dict[str, str]:
    return {**clean_environment(), **mpi.common}


def sh(gambeson: Path, mpi: Mpi, script: str, *options: str, n: int = 1, stdin: str | None = None) -> Job:
    """A job of shells, which start no MPI."""
    command = [str(gambeson), "run", *options, "--", *mpi.mpiexec, "-n", str(n), "bash", "-c", script]
    return run_marked(command, env=environment(mpi), timeout=60, stdin=stdin)


@pytest.fixture
def started(gambeson: Path, mpi: Mpi, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """started(script, before=...) -> a running job whose rank has done `before` and gone on with `script`."""
    mark = uuid.uuid4().hex
    running = []

    def launch(script: str, before: str, ready: Path) -> subprocess.Popen[str]:
        command = [str(gambeson), "run", "--", *mpi.mpiexec, "-n", "1", "bash", "-c"]
        process = subprocess.Popen(
            # Shell builtins alone: a shell that waits for a program takes a signal for the program's.
            [*command, f"{before}; echo $GAMBESON_JOB > {ready}; {script}"],
            env={**environment(mpi), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    def start(script: str, before: str = "true") -> subprocess.Popen[str]:
        ready = tmp_path / "ready"
        process = launch(script, before, ready)
        deadline = time.monotonic() + 30
        while not (ready.exists() and ready.read_text().endswith("\n")):
            if process.poll() is not None:
                output = process.communicate()
                assert NOT_LAUNCHED in "".join(output) and len(running) < 3, output
                process = launch(script, before, ready)
            assert time.monotonic() < deadline, "the job's rank did not get ready"
            time.sleep(0.02)
        return process

    yield start
    for process in running:
        process.kill()
    end_marked(mark)


def gone(directory: Path, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not directory.exists()


def test_streams_pass_untouched(gambeson: Path, mpi: Mpi) -> None:
    # Open MPI 5.0.11's own launcher never ends when its stdin is a pipe.
    stdin, read = (None, "") if mpi.name == "openmpi" else ("one\ntwo\n", "cat; ")
    job = sh(gambeson, mpi, f"{read}echo three; echo problem >&2", "--quiet", stdin=stdin).check()
    assert job.stdout == f"{stdin or ''}three\n"
    assert job.stderr.strip() == "problem"


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -SEGV $$"])
def test_status_is_the_launchers_own(gambeson: Path, mpi: Mpi, end: str) -> None:
    plain = run_marked([*mpi.mpiexec, "-n", "1", "bash", "-c", end], env=environment(mpi), timeout=60)
    assert sh(gambeson, mpi, end).status == plain.status


def test_a_job_without_mpi_is_noted(gambeson: Path, mpi: Mpi) -> None:
    job = sh(gambeson, mpi, "true").check()
    assert "note: no process of this job started MPI or had links, so nothing was sealed" in job.stderr


def test_shared_memory_inside_a_host_is_stated(gambeson: Path, mpi: Mpi) -> None:
    stated = "in clear inside the host; --intra-host sealed takes that through the provider too"
    assert (stated in sh(gambeson, mpi, "true").stderr) == (not mpi.is_openmpi)
    assert stated not in sh(gambeson, mpi, "true", "--intra-host", "sealed").stderr


def test_every_rank_finds_what_the_guard_will_ask_for(gambeson: Path, mpi: Mpi) -> None:
    script = (
        'while IFS= read -r line; do [[ "$(printenv "${line%%=*}")" == "${line#*=}" ]] || echo "not $line"; done'
        ' < "$GAMBESON_JOB/environment"; echo "$LD_PRELOAD $GAMBESON_CORE"'
    )
    job = sh(gambeson, mpi, script, "--core", "tcp", n=2).check()
    lines = job.stdout.splitlines()
    assert len(lines) == 2 and all(line.endswith("/lib/libgambeson-guard.so tcp") for line in lines), job.describe()


def test_preloaded_libraries_stay_in_front(gambeson: Path, mpi: Mpi) -> None:
    libm = next(Path("/lib").glob("*/libm.so.6"))
    command = [str(gambeson), "run", "-q", "--", *mpi.mpiexec, "-n", "1", "bash", "-c", "echo $LD_PRELOAD"]
    job = run_marked(command, env={**environment(mpi), "LD_PRELOAD": str(libm)}, timeout=60).check()
    assert job.stdout.startswith(f"{libm}:/dev/shm/gambeson-"), job.describe()


def test_the_secret_is_in_no_argument_and_no_environment(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    copy = tmp_path / "credential"
    started("sleep 60", before=f"{sys.executable} {ASK} credential > {copy}")
    credential = copy.read_bytes()
    secret = credential[26:58]
    assert credential[:8] == b"GBSNJOB1" and len(set(secret)) > 8
    forms = (secret, secret.hex().encode(), secret.hex().upper().encode())
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            held = readable(process / name)
            assert not any(form in held for form in forms), process
    # Nor in a file: whoever kills all of the job at once leaves nothing that says it.
    directory = Path((tmp_path / "ready").read_text().strip())
    for file in filter(Path.is_file, directory.rglob("*")):
        assert not any(form in file.read_bytes() for form in forms), file


def test_only_the_jobs_processes_are_given_its_secret(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The user's other processes, which could as well be another job's, are not of it."""
    process = started("sleep 60")
    place = Path((tmp_path / "ready").read_text().strip(), "secrets")
    for name in ("credential", "keys", "adopt\0", "adopt\0GBSNJOB1", "", "x" * 100_000):
        status, answer = ask.ask(name, place)
        assert status == REFUSED_BY_HOLDER, (name, status)
        why = (
            b"it is damaged"
            if "GBSNJOB1" in name
            else b"it is not a Gambeson credential"
            if "adopt" in name
            else b"job"
        )
        assert why in answer, (name, answer)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(place))
        silent.sendall(b"\xff\xff\xff\xff")
        assert silent.recv(1) == b"", "no secret is that long"
    assert process.poll() is None, process.communicate()


def test_orphans_are_of_the_job(gambeson: Path, mpi: Mpi) -> None:
    """A process whose parents have ended, in a session of its own, is given the secret, too."""
    script = f"(setsid bash -c 'sleep 0.5; {sys.executable} {ASK} credential | head -c 8 >&2' &) ; sleep 2"
    job = sh(gambeson, mpi, script).check()
    assert "GBSNJOB1" in job.stderr, job.describe()


def test_only_the_user_can_look_into_the_job(started: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = started("sleep 60")
    directory = Path((tmp_path / "ready").read_text().strip())
    assert directory.stat().st_mode & 0o777 == 0o700
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for command in (
        ["ls", str(directory)],
        ["stat", str(directory / "secrets")],
        ["cat", str(directory / "environment")],
        ["cat", f"/proc/{process.pid}/environ"],
        ["dd", f"if=/proc/{process.pid}/mem", "count=1"],
    ):
        done = subprocess.run([*nobody, *command], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "Permission denied" in done.stderr, (command, done)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
@pytest.mark.mpis("mpich")
def test_the_launcher_is_closed_to_its_own_user(gambeson: Path, mpi: Mpi) -> None:
    """Another job of the same user must not read the secret from the launcher's memory, nor a core file hold it."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for program in (str(gambeson), mpi.mpiexec[0]):
        if subprocess.run([*nobody, "test", "-x", program], check=False).returncode != 0:
            pytest.skip(f"{program} is closed to other users")
    command = [*nobody, str(gambeson), "run", "-q", "--", *mpi.mpiexec, "-n", "1", "bash", "-c", "echo here; sleep 60"]
    with subprocess.Popen(command, env=environment(mpi), cwd="/", stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "here\n"
        read = subprocess.run(
            [*nobody, "cat", f"/proc/{process.pid}/environ"], capture_output=True, text=True, check=False
        )
        process.terminate()
    assert read.returncode != 0 and "Permission denied" in read.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_end_the_job_and_everything_of_it(
    started: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str
) -> None:
    process = started("sleep 60")
    directory = Path((tmp_path / "ready").read_text().strip())
    process.send_signal(getattr(signal, name))
    process.wait(timeout=20)
    assert process.returncode != 0
    assert gone(directory)


def test_signals_reach_the_ranks(started: Callable[..., subprocess.Popen[str]], mpi: Mpi, tmp_path: Path) -> None:
    if mpi.name == "intel":
        pytest.skip("Intel MPI's launcher does not pass SIGUSR1 on by itself")
    process = started(
        "for i in $(seq 300); do sleep 0.1; done; exit 9", before=f"trap 'echo got it > {tmp_path}/got; exit 0' USR1"
    )
    process.send_signal(signal.SIGUSR1)
    process.wait(timeout=20)
    assert (tmp_path / "got").exists(), process.communicate()


def test_a_signal_to_the_group_arrives_once(
    started: Callable[..., subprocess.Popen[str]], mpi: Mpi, tmp_path: Path
) -> None:
    if mpi.name == "intel":
        pytest.skip("Intel MPI's launcher does not pass SIGUSR1 on by itself")
    process = started("for i in $(seq 30); do sleep 0.1; done", before=f"trap 'echo x >> {tmp_path}/got' USR1")
    os.killpg(process.pid, signal.SIGUSR1)
    process.wait(timeout=30)
    assert (tmp_path / "got").read_text() == "x\n"


def test_the_launcher_dies_with_gambeson_and_the_next_run_clears_up(
    started: Callable[..., subprocess.Popen[str]], gambeson: Path, mpi: Mpi, tmp_path: Path
) -> None:
    process = started("sleep 60")
    directory = Path((tmp_path / "ready").read_text().strip())
    process.kill()
    process.wait(timeout=10)
    assert directory.exists()
    sh(gambeson, mpi, "true", "-q").check()
    assert not directory.exists()


def test_a_killed_launcher_leaves_no_process(started: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = started("trap '' TERM HUP; setsid sleep 60 & wait")
    directory = Path((tmp_path / "ready").read_text().strip())
    [launcher] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(launcher), signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert not directory.exists()
    needle = f"GAMBESON_JOB={directory}".encode()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if needle in readable(path)]
    assert not left


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_json_goes_to_a_file(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    job = sh(gambeson, mpi, "echo output", f"--json={report}", "-q").check()
    assert job.stdout == "output\n"
    held = json.loads(report.read_text())
    assert (held["status"], held["ranks"], held["refused"]) == (0, [], [])


@pytest.mark.mpis("intel")
def test_intels_own_libfabric_is_found_without_its_setup_script(
    gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    """A program in C would otherwise load the distribution's, and what the user names is left alone."""
    assert mpi.mpicc
    include, library = Path(mpi.mpicc).parents[1] / "include", mpi.bin.parent / "lib"
    linked = [f"-I{include}", str(library / "libmpi.so.12"), f"-Wl,-rpath,{library}"]
    program = programs.compile("cc", "start.c", *linked)
    script = f'{program}; echo "with $I_MPI_OFI_LIBRARY"'
    env = environment(mpi) | {"LD_LIBRARY_PATH": ""}
    command = [str(gambeson), "run", "--intra-host", "sealed", "--", *mpi.mpiexec, "-n", "2", "bash", "-c", script]
    own = run_marked(command, env=env, timeout=60).check()
    assert "rank 1 started, error 0" in own.stdout
    [found] = {line.split()[1] for line in own.stdout.splitlines() if line.startswith("with ")}
    other = tmp_path / "libfabric.so.1"
    other.symlink_to(found)
    for choice in ({"I_MPI_OFI_LIBRARY": str(other)}, {"LD_LIBRARY_PATH": str(tmp_path)}):
        job = run_marked(command, env=env | choice, timeout=60).check()
        assert f"with {other}\n" in job.stdout, job.describe()


@pytest.mark.namespaces
@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_other_hosts_get_the_job_over_ssh(gambeson: Path, mpi: Mpi, two_hosts: Hosts, tmp_path: Path) -> None:
    """Each host has a /dev/shm of its own, as real hosts have; the job's files must be there and gone afterwards."""
    keeper = subprocess.Popen(
        two_hosts.command(
            "h2",
            [
                "unshare",
                "-m",
                "bash",
                "-c",
                "mount --make-rprivate / && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec sleep 300",
            ],
        )
    )
    try:
        own_memory = ["nsenter", "-m", "-t", str(keeper.pid)]
        ssh = tmp_path / "ssh"
        ssh.write_text(two_hosts.agent.read_text().replace("exec ip", f"exec {' '.join(own_memory)} ip", 1))
        ssh.chmod(0o755)
        time.sleep(0.5)
        options, _ = two_hosts.launcher(mpi.name)
        options = [str(ssh) if option == str(two_hosts.agent) else option for option in options]
        kinds = f"$(for name in credential keys; do {sys.executable} {ASK} $name | head -c 8; done)"
        script = f'echo "$(hostname) {kinds} $FI_PROVIDER ${{LD_PRELOAD##*/}}"'
        command = [str(gambeson), "run", "-q", "--", *mpi.mpiexec, *options, "-n", "2", "bash", "-c", script]
        keys = {"GAMBESON_KEYS": str(tmp_path / "keys")}
        subprocess.run([gambeson, "key", "init", "--key-file"], env=environment(mpi) | keys, check=True)
        job = two_hosts.run("h1", command, env=environment(mpi) | keys).check()
        # Before libfabric 1.18 tcp needs another provider on top of it, and FI_PROVIDER must show both.
        providers = "gambeson,tcp,ofi_rxm" if mpi.name == "debian-openmpi" else "gambeson"
        expected = [f"{host} GBSNJOB1GMBSNKEY {providers} libgambeson-guard.so" for host in ("h1", "h2")]
        assert sorted(job.stdout.splitlines()) == expected, job.describe()
        left = subprocess.run([*own_memory, "ls", "/dev/shm"], capture_output=True, text=True, check=True)
        assert "gambeson" not in left.stdout
    finally:
        keeper.kill()
        keeper.wait()


def test_the_agent_needs_a_job(gambeson: Path, tmp_path: Path) -> None:
    agent = tmp_path / "gambeson-agent"
    agent.symlink_to(gambeson)
    done = subprocess.run([agent, "h2", "true"], env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "is for the launchers that `gambeson run` starts" in done.stderr


@pytest.mark.parametrize("words", [["run"], ["run", "mpiexec", "-n", "2", "true"], ["doctor", "mpiexec"]])
def test_who_forgets_the_dashes_is_told(gambeson: Path, words: list[str]) -> None:
    done = subprocess.run([gambeson, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "Put `--` between Gambeson's own options and mpiexec: gambeson run -- mpiexec" in done.stderr


def test_statuses_are_documented(gambeson: Path) -> None:
    for words in (["--help"], ["run", "--help"], ["doctor", "--help"]):
        shown = subprocess.run([gambeson, *words], capture_output=True, text=True, check=True).stdout
        for status in ("64", "69", "70", "71", "78"):
            assert f"\n  {status} " in shown, (words, shown)


def test_completions_and_man_pages_are_written(gambeson: Path, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert (
            "gambeson"
            in subprocess.run([gambeson, "completion", shell], capture_output=True, text=True, check=True).stdout
        )
    subprocess.run([gambeson, "manual", str(tmp_path)], check=True)
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"gambeson.1", "gambeson-run.1", "gambeson-doctor.1", "gambeson-policy-check.1"} <= pages
    assert not any("start" in page or "keep" in page for page in pages), pages
