"""Workers that somebody else starts, in whatever way: they read from a file where the manager is, prove that they have
read it, and join.

    gambeson worker --farm FILE                    manager: farm.joining(FILE)
      JOIN: its key ── sealed ───────────────────>   publishes "gambeson/farm" for who has the file's secret
      <──────────────────────── its invitation, as soon as the contract has a place for it
      then as any worker; the stream stays open, so that each end knows when the other is gone
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from gambeson import link
from gambeson._private import read_private, write_private
from gambeson.farm._errors import FarmError
from gambeson.farm._invitation import Invitation, address_towards
from gambeson.farm._recruit import LOCALHOST, Recruit, Recruiter
from gambeson.link import Answers, Domain, Error, HandlerRefused, Identity, IdentityUnusable, Request, Trust

NAME = "gambeson/farm"
"""What the manager's lobby is published as, for processes with the role `rank`."""
JOIN = 0
ALL = 1 << 16
"""Workers that are taken if nobody says how many."""
LOOK = 0.1
"""Seconds between two looks whether a worker is still there."""
AGAIN = 0.5
"""Seconds before a worker asks again at a manager that is not there yet."""


@dataclass(eq=False)
class Joined(Recruit):
    """A worker that came by itself. Nobody here can end its process: without an answer to take it ends itself."""

    invited: queue.SimpleQueue[Invitation | None] = field(default_factory=queue.SimpleQueue)
    gone: threading.Event = field(default_factory=threading.Event)

    def invite(self, invitation: Invitation) -> None:
        self.invited.put(invitation)

    def wait(self) -> None:
        self.gone.wait()

    def ended(self) -> str | None:
        return "it is gone" if self.gone.is_set() else None

    def dismiss(self, patience: float = 0.0) -> None:
        self.gone.wait(patience)
        self.invited.put(None)


@dataclass
class Joining(Recruiter):
    """Takes whoever joins."""

    file: Path = Path()
    listen: str = ""
    _waiting: deque[Joined] = field(default_factory=deque)
    _reserved: dict[str, Joined] = field(default_factory=dict)
    _lobby: Domain | None = None

    def open(self) -> None:
        address = self.listen.rpartition(":")[0]
        try:
            domain, said = Domain.from_job(listen=[self.listen], address=address), {}
        except IdentityUnusable:
            job, secret = secrets.token_bytes(16), secrets.token_bytes(32)
            trust = Trust().job(job, secret, bytes(32))
            domain = Domain(Identity.generate(), trust, listen=[self.listen], address=address)
            said = {"job": job.hex(), "secret": secret.hex()}
        domain.endpoint({JOIN: self._join}, class_name="control").publish(NAME, ["rank"])
        self._lobby = domain
        try:
            write_private(self.file, json.dumps({"address": domain.listening[0], **said}) + "\n", replace=True)
        except OSError as error:
            self.close()
            what = f"the file by which workers join, {self.file}, cannot be written: {error.strerror}"
            raise FarmError(what) from error

    def close(self) -> None:
        if self._lobby is not None:
            self.file.unlink(missing_ok=True)
            self._lobby.close()
            self._lobby = None

    def _join(self, request: Request) -> Iterator[bytes]:
        """Its invitation, and nothing more as long as it may stay."""
        try:
            key = bytes.fromhex(json.loads(request.payload)["key"])
            if len(key) != 32:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise HandlerRefused("it does not say who it is as a worker does") from None
        peer = request.peer
        name = f"{self.label}-{next(self._count)}"
        joined = Joined(name, name, peer.host, peer.address, False, key)
        self._waiting.append(joined)
        try:
            while not request.is_cancelled:
                try:
                    invitation = joined.invited.get(timeout=LOOK)
                except queue.Empty:
                    continue
                if invitation is None:
                    return
                yield invitation.encode().encode()
        finally:
            joined.gone.set()

    def places(self, processors: int) -> int:
        return ALL

    def reachable(self) -> list[str]:
        return [self.listen.rpartition(":")[0]]

    def reserve(self) -> str | None:
        while self._waiting:
            joined = self._waiting.popleft()
            if not joined.gone.is_set():
                self._reserved[joined.name] = joined
                return joined.name
        return None

    def is_spent(self) -> bool:
        return False

    def start(self, host: str, domain: Domain) -> Recruit:
        return self._reserved.pop(host)

    def failed(self, host: str) -> None:
        """Each is another one: nobody waits for the next."""

    def free(self, host: str) -> None:
        """Its place was its own."""


def joining(file: str | PathLike[str], *, listen: str | None = None) -> Joining:
    """Takes workers that others start: `gambeson worker --farm FILE`, by `mpiexec`, by `srun`, by a batch system.

    The manager writes the file when it begins, for its owner alone, and removes it when it closes; whoever can read it
    can join. In a job of `gambeson run` the processes of the job can, and the file holds no secret. `listen` is where
    the manager is for them, an address with or without a port: without it, the one that this host has towards others.
    """
    wanted = listen or _own_address()
    if ":" not in wanted or wanted.endswith("]"):
        wanted += ":0"
    return Joining((), (), label="joined", file=Path(file).absolute(), listen=wanted)


def _own_address() -> str:
    try:
        # A network for documentation (RFC 5737): wherever it would go to, nothing is sent.
        return address_towards("192.0.2.1")
    except OSError:
        return LOCALHOST


def join(file: Path, key: bytes, patience: float) -> tuple[Invitation, Answers, Domain]:
    """Joins the farm of a file: the invitation, and what ends when the manager is gone. For as many seconds as
    `patience` it may be missing, or not answer.

    Raises `FarmError`.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return _try_to_join(file, key)
        except (IdentityUnusable, link.Lost, link.TimedOut, OSError, FarmError) as error:
            if time.monotonic() > deadline:
                what = f"no farm was joined for {patience:g} s: {error}"
                raise FarmError(what) from error
        except Error as error:
            raise FarmError(f"this worker cannot join: {error}") from error
        time.sleep(AGAIN)


def _try_to_join(file: Path, key: bytes) -> tuple[Invitation, Answers, Domain]:
    remedy = "the manager writes it when it begins: farm.joining(FILE)"
    text = read_private(file, "the file of the farm", remedy)
    try:
        said = json.loads(text)
        address = str(said["address"])
        secret = (bytes.fromhex(said["job"]), bytes.fromhex(said["secret"])) if "secret" in said else None
    except (ValueError, KeyError, TypeError):
        raise FarmError(f"{file} is no file of a farm: {remedy}") from None
    own = address_towards(address.rpartition(":")[0].strip("[]"))
    if secret is None:
        try:
            domain = Domain.from_job(address=own)
        except IdentityUnusable as error:
            what = "the farm's manager is in a job of gambeson run, so start its workers in that job"
            raise FarmError(what) from error
    else:
        trust = Trust().job(*secret, bytes(32))
        domain = Domain(Identity.generate(), trust, host=socket.gethostname(), address=own)
    try:
        lobby = domain.attach(address, NAME, role="rank")
        answers = lobby.stream(JOIN, json.dumps({"key": key.hex()}).encode(), timeout=None)
        return Invitation.decode(next(answers).decode()), answers, domain
    except StopIteration:
        domain.close()
        raise FarmError("the manager has no place for it any more") from None
    except BaseException:
        domain.close()
        raise
