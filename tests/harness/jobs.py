"""Runs one MPI job, sealed or plain, with a time limit, and sees to it that no process of it survives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.mpis import Mpi, clean_environment

MARK = "TEST_JOB_MARK"
"""Every process of a job carries this variable, so that survivors are found whoever their parent is by then."""
GRACE_S = 5.0
NOT_LAUNCHED = "The PMIx server's listener thread failed to start"
"""With this Open MPI 5's mpiexec gives up once in some 400 starts, before anything of the job runs, plain too."""


@dataclass(frozen=True)
class Job:
    """What became of a job."""

    command: list[str]
    status: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    survivors: list[str] = field(default_factory=list)
    """Command lines of processes that still ran some seconds after the launcher had ended."""

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    def check(self) -> Job:
        """Asserts success and a clean process table; returns the job itself."""
        assert not self.timed_out, f"no end after {self.seconds:.0f} s\n{self.describe()}"
        assert self.status == 0, f"status {self.status}\n{self.describe()}"
        assert not self.survivors, f"left behind: {self.survivors}\n{self.describe()}"
        return self

    def describe(self) -> str:
        def tail(text: str) -> str:
            return text if len(text) <= 6000 else "[...]\n" + text[-6000:]

        return f"$ {' '.join(self.command)}\n--- stdout\n{tail(self.stdout)}\n--- stderr\n{tail(self.stderr)}"


def marked_processes(mark: str) -> dict[int, str]:
    """Processes whose environment carries `mark`: pid -> command line. Zombies have no environment and don't count.

    Nor has a process in the middle of `execve`, so one look that finds nothing may have come at that moment.
    """
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(entry.name)] = command
    return found


def end_marked(mark: str) -> None:
    for _ in range(20):
        left = marked_processes(mark)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def run_marked(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    stdin: str | None = None,
    stalled: Callable[[], bool] | None = None,
) -> Job:
    """Runs `command` and waits for it and for all its descendants.

    It counts as timed out after `timeout` seconds, or as soon as `stalled`, asked every second, says so.
    """
    for _ in range(3):
        job = _run_once(command, env=env, timeout=timeout, cwd=cwd, stdin=stdin, stalled=stalled)
        if NOT_LAUNCHED not in job.output:
            break
    return job


def _run_once(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None,
    stdin: str | None,
    stalled: Callable[[], bool] | None,
) -> Job:
    mark = uuid.uuid4().hex
    started = time.monotonic()
    timed_out = False
    with subprocess.Popen(
        list(command),
        env={**env, MARK: mark},
        cwd=cwd,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = _communicate(process, stdin, timeout, stalled)
        except subprocess.TimeoutExpired:
            timed_out = True
            # The launcher first: most then end their ranks and say something useful.
            process.terminate()
            try:
                stdout, stderr = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                end_marked(mark)
                stdout, stderr = process.communicate()
        except BaseException:
            # A test's own time-out or ^C must not leave a job spinning.
            end_marked(mark)
            raise
    seconds = time.monotonic() - started
    deadline = time.monotonic() + GRACE_S
    clear = 0
    while clear < 2 and time.monotonic() < deadline:
        left = marked_processes(mark)
        clear = 0 if left else clear + 1
        time.sleep(0.05)
    end_marked(mark)
    return Job(list(command), process.returncode, stdout, stderr, seconds, timed_out, list(left.values()))


def _communicate(
    process: subprocess.Popen[str], stdin: str | None, timeout: float, stalled: Callable[[], bool] | None
) -> tuple[str, str]:
    if stalled is None:
        return process.communicate(stdin, timeout=timeout)
    deadline = time.monotonic() + timeout
    while True:
        try:
            return process.communicate(stdin, timeout=1)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline or stalled():
                raise


@dataclass(frozen=True)
class Runner:
    """Starts jobs on the MPIs; `plain` runs them all without Gambeson, to learn what fails by itself."""

    gambeson: Path
    plain: bool = False

    def run(
        self,
        mpi: Mpi,
        program: Sequence[str | Path],
        *,
        n: int = 2,
        options: Sequence[str] = (),
        mpiexec_options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        intra_host: str = "sealed",
        plain: bool | None = None,
        cwd: Path | None = None,
        stdin: str | None = None,
        prefix: Sequence[str] = (),
        stalled: Callable[[], bool] | None = None,
    ) -> Job:
        """Runs `program` on `n` ranks.

        `options` are for `gambeson run`, `mpiexec_options` go before `-n`, `prefix` before everything. A program that
        ends in .py is run by the MPI's own Python. Inside one host messages pass the provider too unless `intra_host`
        says "mpi"; otherwise a test on one machine would test the MPI's shared memory.
        """
        words = [str(word) for word in program]
        if words[0].endswith(".py"):
            words = [mpi.python, *words]
        command = [*mpi.mpiexec, *mpiexec_options, "-n", str(n), *words]
        environment = {**clean_environment(), **mpi.common}
        if self.plain if plain is None else plain:
            environment |= mpi.env
        else:
            command = [str(self.gambeson), "run", "--intra-host", intra_host, *options, "--", *command]
        environment |= env or {}
        return run_marked([*prefix, *command], env=environment, timeout=timeout, cwd=cwd, stdin=stdin, stalled=stalled)
