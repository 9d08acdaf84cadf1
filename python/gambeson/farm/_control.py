"""Control threads of the paper, one for each worker (secure-muskel paper, section 2): what goes to it, and what it has.
They need no thread each: the manager's moves all of them on, a step for each message.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gambeson import _native
from gambeson.farm._protocol import ToWorker
from gambeson.farm._security import Decision, Place
from gambeson.link import Capability, Caveat, Domain, Protection, Startpoint

if TYPE_CHECKING:
    from gambeson.farm._pool import Task
    from gambeson.farm._recruit import Recruit, Recruiter

WORK: float = 2e-3
"""Seconds of work that a worker is given ahead, so that it does not wait for more."""
FEW: int = 32
"""Tasks that a worker is given ahead at the most."""
LONG: float = 20e-3
"""Tasks of so many seconds are worth no waiting behind one another: a worker has one, and gets the next when it
returns."""
PING: float = 1.0
"""Seconds between two questions whether a worker is there."""


@dataclass(eq=False)
class Control:
    """What the manager knows of a worker, and has given it."""

    number: int
    recruit: Recruit
    recruiter: Recruiter
    place: Place
    trusted: bool
    """Whether its results are unpickled."""
    joined: bool = False
    plain: bool = False
    """Whether it takes plain data alone: it was pinned to code."""
    leaves: bool = False
    """Whether it gets no further task, and is released when it has none."""
    in_flight: dict[int, Task] = field(default_factory=dict)
    staged: set[int] = field(default_factory=set)
    stops: bool = False
    """Whether it was told to leave off a task, and has not said that it did."""
    suspect: bool = False
    """Whether it is at a task that was there when a worker ended: it has no other beside, so that it is known which."""
    done: int = 0
    failed: int = 0
    busy: float = 0.0
    """Seconds that its tasks took, by its own clock."""
    sealed: int = 0
    """Tasks that went to it over the sealed link."""
    load: float = 0.0
    """Seconds that its tasks will take, as far as is known."""
    heard: float = field(default_factory=time.monotonic)
    endpoint: _native.NativeEndpoint | None = None
    links: tuple[Startpoint, Startpoint] | None = None
    weakest: str = "privacy"
    """What the policy makes of links to it."""
    pid: int | None = None
    _asked: Future[bytes] | None = None
    _asked_at: float = 0.0
    _sealed_box: _native.NativeOutbox | None = None
    _clear_box: _native.NativeOutbox | None = None
    decisions: dict[Any, Decision] = field(default_factory=dict)
    """By marks and labels, for which they hold."""

    def bind(self, domain: Domain, startpoint: bytes) -> None:
        """Opens both links to it."""
        capability = Capability.decode(startpoint)
        clear = domain.startpoint(capability)
        sealed = domain.startpoint(capability.narrow(Caveat.protection(Protection.PRIVACY)))
        self.links = (clear, sealed)
        self.weakest = clear.protection.value
        self._sealed_box = _native.NativeOutbox(sealed._native)
        self._clear_box = self._sealed_box if self.weakest == "privacy" else _native.NativeOutbox(clear._native)
        self.joined = True

    def has_room(self, ahead: bool) -> bool:
        """Whether it may have another task, `ahead` of when it is through with those that it has."""
        if not self.joined or self.leaves or self.suspect or self.stops:
            return False
        if not self.in_flight or not ahead:
            return not self.in_flight
        few = len(self.in_flight)
        return (self.load < WORK and few < FEW) or (few == 1 and self.load < LONG)

    def stage(self, number: int, parts: list[bytes], sealed: bool) -> None:
        """Sends it a stage's code, once."""
        self.staged.add(number)
        self._post(sealed, ToWorker.STAGE, number, 0, parts)

    def send(self, task: Task, word: int, parts: Any, sealed: bool) -> None:
        """Sends it a task."""
        self.in_flight[task.number] = task
        self.suspect = task.attempts > 0
        self.load += task.expected
        self.sealed += sealed
        self._post(sealed, ToWorker.TASK, task.number, word, parts)

    def cancel(self, number: int) -> None:
        """Has it leave off a task."""
        self._post(True, ToWorker.CANCEL, number, 0, [b""])

    def release(self) -> None:
        """It may go."""
        self._post(True, ToWorker.RELEASE, 0, 0, [b""])

    def _post(self, sealed: bool, kind: ToWorker, number: int, word: int, parts: Any) -> None:
        box = self._sealed_box if sealed else self._clear_box
        assert box is not None
        box.post(kind, number, word, parts)

    def take_back(self, number: int) -> Task | None:
        """A task that it has no longer."""
        task = self.in_flight.pop(number, None)
        if task is not None:
            # Without tasks there is no load, whatever became of the sum.
            self.load = self.load - task.expected if self.in_flight else 0.0
            self.suspect = False
        return task

    def returned(self, seconds: float) -> None:
        """A task came back, which took so long."""
        self.done += 1
        self.busy += seconds
        self.heard = time.monotonic()

    def ping(self) -> float:
        """Asks whether it is there, which its links answer whatever it computes. For how many seconds they have not.

        Raises `Lost`.
        """
        now = time.monotonic()
        if self._asked is not None and not self._asked.done():
            return now - self._asked_at
        if now - self._asked_at > PING:
            assert self.links is not None
            self._asked, self._asked_at = self.links[1].submit(ToWorker.ECHO, b""), now
        return 0.0

    def close(self) -> None:
        """The links to it end."""
        for box in {id(box): box for box in (self._sealed_box, self._clear_box) if box is not None}.values():
            box.close()
        if self.links is not None:
            for link in self.links:
                link.close()
        if self.endpoint is not None:
            self.endpoint.close()
        self.joined = False

    def __str__(self) -> str:
        return f"{self.place.name} on {self.place.host}"
