"""What happens around a job's processes: killed ranks, children that want to send, other users who look for secrets."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.jobs import Job, Runner
from harness.mpis import ROOT, Mpi
from harness.programs import Programs

PROGRAMS = Path(__file__).resolve().parent / "programs"
NOBODY = 65534
SECRET_AT = 26
"""Offset of the job secret in a credential: magic, version and job id come first."""
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}.get(platform.machine())
KEYCTL_READ = 11

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user and to look everywhere")


def test_killed_rank(mpi: Mpi, runner: Runner, plain: bool) -> None:
    """The others do not wait for a rank that was killed: the job ends, says which, and leaves nothing behind."""
    job = runner.run(mpi, [PROGRAMS / "killed.py"], n=3, timeout=60)
    assert not job.timed_out, job.describe()
    assert job.status != 0, job.describe()
    assert not job.survivors, f"{job.survivors}\n{job.describe()}"
    if not plain:
        assert re.search(r"^gambeson: .*rank 1 on ", job.stderr, re.M), job.describe()


@pytest.mark.parametrize("how", ["fork", "clone", "vfork", "clone-vm"])
def test_child_cannot_send(mpi: Mpi, runner: Runner, plain: bool, how: str) -> None:
    """A child shares its parent's connections and, seen from outside, its keys: two would number records alike."""
    assert mpi.mpicc
    program = Programs(PROGRAMS, ROOT / "build" / "programs").compile(mpi.mpicc, "child.c")
    # The compiler may be that of another MPI with the same libmpi.so.
    library = {"LD_LIBRARY_PATH": str(mpi.bin.parent / "lib")}
    job = runner.run(mpi, [program, how], env=library, timeout=60)
    if plain:
        # So the program is one that can tell the difference.
        assert "CHILD sent" in job.stdout, job.describe()
    else:
        assert "WRONG" not in job.output, job.describe()
        job.check()
        assert "CHILD refused" in job.stdout, job.describe()
        assert "RIGHT 0" in job.stdout, job.describe()
        assert "RIGHT 1" in job.stdout, job.describe()


@dataclass(frozen=True)
class Waiting:
    """A job that is under way."""

    pids: list[int]
    job_folder: Path
    secret: bytes
    folder: Path

    @property
    def needles(self) -> list[bytes]:
        encoded = base64.b64encode(self.secret).rstrip(b"=")
        return [self.secret, self.secret.hex().encode(), self.secret.hex().upper().encode(), encoded]


@contextlib.contextmanager
def waiting_job(
    mpi: Mpi,
    runner: Runner,
    folder: Path,
    n: int = 2,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> Iterator[tuple[Waiting, Future[Job]]]:
    with ThreadPoolExecutor(1) as pool:
        program = [PROGRAMS / "waiting.py", folder]
        future = pool.submit(runner.run, mpi, program, n=n, options=options, timeout=90, cwd=folder, env=env)
        try:
            files = [folder / f"rank-{rank}" for rank in range(n)]
            deadline = time.monotonic() + 60
            while not all(file.exists() for file in files):
                assert not future.done(), future.result().describe()
                assert time.monotonic() < deadline, "the job did not start"
                time.sleep(0.05)
            pids = [int(file.read_text()) for file in files]
            environment = Path(f"/proc/{pids[0]}/environ").read_bytes().split(b"\0")
            where = next(word for word in environment if word.startswith(b"GAMBESON_JOB="))
            job_folder = Path(os.fsdecode(where.partition(b"=")[2]))
            credential = folder / "credential"
            secret = credential.read_bytes()[SECRET_AT : SECRET_AT + 32]
            credential.unlink()
            assert len(set(secret)) > 8, "this is no secret"
            yield Waiting(pids, job_folder, secret, folder), future
        finally:
            (folder / "end").touch()


def found_in_memory(pid: int, needles: list[bytes]) -> list[str]:
    places = []
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            start, end = (int(number, 16) for number in words[0].split("-"))
            if words[1][0] != "r" or words[-1] in ("[vvar]", "[vsyscall]") or end - start > 1 << 30:
                continue
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                region = memory.read(end - start)
                places += [f"memory of {pid}: {line}" for needle in needles if needle in region]
    return places


def found_in_files(needles: list[bytes]) -> list[str]:
    """Everything that processes show in files, and shared memory."""
    places = []
    shown = [entry / name for entry in Path("/proc").glob("[0-9]*") for name in ("environ", "cmdline", "stat")]
    shared = [path for top in ("/dev/shm", "/run/user") for path in Path(top).rglob("*")]
    for path in [*shown, *shared]:
        with contextlib.suppress(OSError):
            if path.is_file():
                content = path.read_bytes()
                places += [str(path) for needle in needles if needle in content]
    return places


def found_in_keyrings(needles: list[bytes]) -> list[str]:
    places = []
    with contextlib.suppress(OSError):
        library = ctypes.CDLL(None, use_errno=True)
        for line in Path("/proc/keys").read_text().splitlines():
            buffer = ctypes.create_string_buffer(65536)
            length = library.syscall(KEYCTL, KEYCTL_READ, int(line.split()[0], 16), buffer, len(buffer))
            content = buffer.raw[: max(0, min(length, len(buffer)))]
            places += [f"key {line}" for needle in needles if needle in content]
    return places


def as_user(uid: int, look: Callable[[], list[str]]) -> list[str]:
    """What `look` finds when another user does it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writable, json.dumps(look()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable, "rb") as answer:
        places: list[str] = json.loads(answer.read())
    assert os.waitpid(child, 0)[1] == 0
    return places


@root_only
def test_no_other_user_finds_the_secret(mpi: Mpi, runner: Runner, plain: bool, tmp_path: Path) -> None:
    if plain:
        pytest.skip("a plain job has no secret")
    # The credential has to be what the ranks really use: root, who may look, finds it in their memory.
    with waiting_job(mpi, runner, tmp_path) as (job, future):
        assert (job.job_folder.stat().st_mode & 0o777) == 0o700
        assert any(found_in_memory(pid, [job.secret]) for pid in job.pids), "the search itself does not work"
        everybody = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]

        def look() -> list[str]:
            places = [place for pid in everybody for place in found_in_memory(pid, job.needles)]
            places += found_in_files(job.needles) + found_in_keyrings(job.needles)
            for name in ("environment", *(f"rank-{pid}" for pid in job.pids)):
                with contextlib.suppress(OSError):
                    (job.job_folder / name).read_bytes()
                    places.append(f"{name} can be read")
            return places

        assert as_user(NOBODY, look) == []
        # Nor does it stand where every process of the same user would show it to ps or pass it on to its children.
        exposed = [place for place in found_in_files(job.needles) if place.startswith("/proc")]
        assert exposed == []
    future.result().check()
    assert not job.job_folder.exists(), "the job's directory is still there"


@root_only
def test_core_dump_holds_no_secret(mpi: Mpi, runner: Runner, plain: bool, tmp_path: Path) -> None:
    if plain:
        pytest.skip("a plain job has no secret")
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        with waiting_job(mpi, runner, tmp_path) as (job, future):
            assert found_in_memory(job.pids[1], [job.secret]), "the search itself does not work"
            cores = [live_core(job.pids[0], tmp_path)]
            os.kill(job.pids[1], signal.SIGABRT)
            ended = future.result()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    assert not ended.timed_out, ended.describe()
    assert not ended.survivors, ended.survivors
    cores += [path for path in tmp_path.glob("core*") if path not in cores]
    seen = 0
    for core in cores:
        if core is None:
            continue
        content = core.read_bytes()
        # All processes of the job may dump; the ranks' dumps show their ordinary memory, so the search works.
        seen += re.search(rb"ordinary memory of rank \d ", content) is not None
        assert not [needle for needle in job.needles if needle in content], f"the job secret is in {core.name}"
    assert seen, f"no core dump of a rank among {cores}"


def live_core(pid: int, folder: Path) -> Path | None:
    """A dump of a process that goes on, as gdb makes it; it looks at the same marks as the kernel."""
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(
            ["gcore", "-o", str(folder / "core-live"), str(pid)], capture_output=True, timeout=60, check=False
        )
        return next(iter(folder.glob("core-live*")), None)
    return None
