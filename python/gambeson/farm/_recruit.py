"""Recruiting: where workers come from. Each is started by a command that gives its standard input and output to the
manager; over those both learn each other's keys, and all the rest goes over links.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from gambeson.farm._errors import FarmError
from gambeson.farm._invitation import Invitation
from gambeson.link import Domain

LOCALHOST = "127.0.0.1"
FORKING = threading.Lock()
"""Held while a process is made: of two at once each would have the other's pipes, which then did not end."""
REST, REST_MAX = 0.1, 30.0
"""Seconds before a worker is started again where one failed."""


@dataclass(eq=False)
class Recruit(ABC):
    """A worker that was started."""

    name: str
    place: str
    """What was reserved for it."""
    host: str
    address: str | None
    local: bool
    key: bytes

    @abstractmethod
    def invite(self, invitation: Invitation) -> None:
        """Tells it where to connect.

        Raises `OSError`, or an error of links.
        """

    @abstractmethod
    def wait(self) -> None:
        """Waits until it has ended."""

    @abstractmethod
    def ended(self) -> str | None:
        """How it ended; none while it runs, or if nobody knows."""

    @abstractmethod
    def dismiss(self, patience: float = 0.0) -> None:
        """Ends it, if it does not end by itself in so many seconds."""


def told(status: int | None) -> str | None:
    """A process's status, in words."""
    if status is None:
        return None
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it exited with status {status}"


@dataclass(eq=False)
class Process(Recruit):
    """A worker behind a process of this host: itself, or what started it elsewhere."""

    process: subprocess.Popen[str]

    def invite(self, invitation: Invitation) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(invitation.encode())
        self.process.stdin.flush()

    def ended(self) -> str | None:
        return told(self.process.poll())

    def dismiss(self, patience: float = 0.0) -> None:
        if self.process.stdin is not None:
            # What it did not read is of no use to it.
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait(self) -> None:
        # Its pipe ends when it does.
        assert self.process.stdout is not None
        with contextlib.suppress(OSError), self.process.stdout as pipe:
            pipe.read()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)


@dataclass
class Recruiter:
    """Starts workers by a command, in turn on these hosts.

    `command` runs a worker's command line, which is appended to it, on a host, whose name stands for `{host}` in it. As
    many workers as `slots` are started on each host, without a bound if it is none.
    """

    command: Sequence[str] = ()
    hosts: Sequence[str] = (LOCALHOST,)
    slots: int | None = None
    python: str | Sequence[str] = sys.executable
    """The Python that has Gambeson there, or a command that runs it."""
    local: bool = False
    quoted: bool = False
    """Whether the command wants the worker's command line as one argument, as a shell takes it."""
    label: str = "worker"
    _started: dict[str, int] = field(default_factory=dict)
    _distrusted: set[str] = field(default_factory=set)
    _resting: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Until when nothing is tried on a host, and for how long that is."""
    _count: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def open(self) -> None:
        """A manager begins to recruit here.

        Raises `FarmError`.
        """

    def close(self) -> None:
        """The manager is closed."""

    def places(self, processors: int) -> int:
        """How many workers there are to be if nobody says so, on a host with so many processors."""
        return processors

    def reachable(self) -> list[str]:
        """Hosts that workers will be on, or their addresses, as far as they are known."""
        return list(self.hosts)

    def reserve(self) -> str | None:
        """A place for another worker, on the host with the fewest, if one is free. The manager's lock is held."""
        now = time.monotonic()
        hosts = [
            host
            for host in self.hosts
            if host not in self._distrusted and self._resting.get(host, (0.0, 0.0))[0] <= now
        ]
        if not hosts:
            return None
        host = min(hosts, key=lambda name: self._started.get(name, 0))
        if self.slots is not None and self._started.get(host, 0) >= self.slots:
            return None
        self._started[host] = self._started.get(host, 0) + 1
        return host

    def is_spent(self) -> bool:
        """Whether no place will ever be free: all hosts are distrusted."""
        return all(host in self._distrusted for host in self.hosts)

    def failed(self, host: str) -> None:
        """A worker ended there before it did anything: the next one waits, longer each time. The lock is held."""
        _, before = self._resting.get(host, (0.0, 0.0))
        delay = min(REST_MAX, max(REST, 2 * before))
        self._resting[host] = (time.monotonic() + delay, delay)

    def worked(self, host: str) -> None:
        """A worker there does something. The manager's lock is held."""
        self._resting.pop(host, None)

    def distrust(self, host: str) -> None:
        """A worker there lied: none is started there again. The manager's lock is held."""
        if not self.local:
            self._distrusted.add(host)

    def free(self, host: str) -> None:
        """A place that is not needed, or not any more. The manager's lock is held."""
        self._started[host] -= 1

    def start(self, host: str, domain: Domain) -> Recruit:
        """Starts a worker in a place that was reserved, and waits for its key. `domain` is the manager's.

        Raises `FarmError`.
        """
        del domain
        name = f"{self.label}-{next(self._count)}"
        python = [self.python] if isinstance(self.python, str) else self.python
        worker = [*python, "-m", "gambeson.farm"]
        command = [part.replace("{host}", host) for part in self.command]
        command += [shlex.join(worker)] if self.quoted else worker
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        try:
            with FORKING:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            what = f"no worker can be started on {host}: {error}; is {command[0]} installed?"
            raise FarmError(what) from error
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            key = bytes.fromhex(json.loads(line)["key"])
        except (ValueError, KeyError) as error:
            process.kill()
            process.wait()
            said = f"it said {line.strip()!r}" if line.strip() else "it ended without a word"
            what = (
                f"the worker on {host} did not come up: {said}. What it complains of stands above; try the command "
                f"by hand: {shlex.join(command)}"
            )
            raise FarmError(what) from error
        address = LOCALHOST if self.local else address_of(host)
        return Process(name, host, "localhost" if self.local else host, address, self.local, key, process)


def local() -> Recruiter:
    """Workers on this host: the default."""
    return Recruiter(local=True, label="local")


def ssh(
    *hosts: str,
    slots: int | None = None,
    python: str | Sequence[str] = "python3",
    command: Sequence[str] = ("ssh", "-o", "BatchMode=yes"),
) -> Recruiter:
    """Workers on hosts that are reached by ssh, or what `command` says, without being asked for a password; `python`
    there has Gambeson.
    """
    if not hosts:
        raise ValueError("name hosts to start workers on")
    return Recruiter([*command, "{host}"], hosts, slots, python, quoted=True, label="ssh")


def daemon(
    *hosts: str,
    slots: int | None = None,
    python: str | Sequence[str] = "python3",
    command: Sequence[str] = ("gambeson", "exec"),
) -> Recruiter:
    """Workers on hosts where gambesond runs, started as who this is to the site; `python` there has Gambeson, and
    `command` runs a command on a host by its daemon. They end with this program.
    """
    if not hosts:
        raise ValueError("name hosts to start workers on")
    return Recruiter([*command, "{host}", "--"], hosts, slots, python, label="daemon")


def slurm(*options: str, python: str | Sequence[str] = sys.executable) -> Recruiter:
    """Workers that Slurm starts: each is a job step of one task, or a job, with these options of srun."""
    command = ["srun", "--ntasks=1", "--unbuffered", *options]
    return Recruiter(command, ("slurm",), None, python, label="slurm")


def mpi(*options: str, mpiexec: str = "mpiexec", python: str | Sequence[str] = sys.executable) -> Recruiter:
    """Workers that an MPI's launcher starts, one process each, with these options of its."""
    return Recruiter([mpiexec, "-n", "1", *options], ("mpi",), None, python, label="mpi")


def address_of(host: str) -> str | None:
    """The address of a host, if its name has one."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])
    except (OSError, UnicodeError):
        return None
