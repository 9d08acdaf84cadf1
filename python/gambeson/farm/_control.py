"""Control threads of the paper, one for each worker (secure-muskel paper, section 2): what goes to it, and what it has.
They need no thread each: the manager's moves all of them on, a step for each message.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gambeson import _native
from gambeson.farm._protocol import ToWorker
from gambeson.farm._security import SEALED, Decision, Place, Security
from gambeson.link import Capability, Caveat, Domain, Error, Policy, Protection, Startpoint

if TYPE_CHECKING:
    from gambeson.farm._annotation import Marks
    from gambeson.farm._recruit import Recruit, Recruiter
    from gambeson.farm._task import Task

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
    document: str
    """The policy that it was told to follow."""
    joined: bool = False
    plain: bool = False
    """Whether it takes plain data alone: it was pinned to code."""
    leaves: bool = False
    """Whether it gets no further task, and is released when it has none."""
    in_flight: dict[int, Task] = field(default_factory=dict)
    staged: set[int] = field(default_factory=set)
    stops: set[int] = field(default_factory=set)
    """Tasks that it was at and was told to leave off, and has not said that it did."""
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
    links: list[Startpoint] = field(default_factory=list)
    """The sealed one, and one for what need not be, if the policy leaves such a link."""
    weakest: str = "privacy"
    """How what need not be sealed goes to it."""
    unsure: deque[list[int]] = field(default_factory=deque)
    """For each policy that it was told and has not agreed to, the tasks that it had then, or was to leave off: what
    went over links that ended may not have arrived."""
    ordered: Future[bytes] | None = None
    """Comes behind all that was under way when it was told."""
    pid: int | None = None
    _asked: Future[bytes] | None = None
    _asked_at: float = 0.0
    _sealed_box: _native.NativeOutbox | None = None
    _clear_box: _native.NativeOutbox | None = None
    _capability: Capability | None = None
    decisions: dict[Any, Decision] = field(default_factory=dict)
    """By marks and labels, for which they hold."""

    def bind(self, domain: Domain, startpoint: bytes) -> None:
        """Opens the sealed link to it."""
        self._capability = Capability.decode(startpoint)
        sealed = domain.startpoint(self._capability.narrow(Caveat.protection(Protection.PRIVACY)))
        self.links = [sealed]
        self._sealed_box = self._clear_box = _native.NativeOutbox(sealed._native)
        self.joined = True

    def open_clear(self, domain: Domain) -> None:
        """Opens the link for what need not be sealed, if the policies of both ends leave one that is weaker."""
        if self.document == SEALED:
            return None
        assert self._capability is not None
        clear = domain.startpoint(self._capability)
        if clear.protection is Protection.PRIVACY:
            return clear.close()
        self.links.append(clear)
        self.weakest = clear.protection.value
        self._clear_box = _native.NativeOutbox(clear._native)
        self.decisions.clear()
        return None

    def has_clear(self) -> bool:
        """Whether there is a link to it that is not sealed."""
        return len(self.links) > 1

    def order(self, document: str, stages: set[int]) -> None:
        """Has it follow another policy, and keep the code of these stages. All is sealed until it agrees."""
        self.document = document
        self.unsure.append([*self.in_flight, *self.stops] if self.has_clear() else [])
        if self.has_clear():
            # Code may not have arrived, either. A worker that has it keeps it.
            self.staged.clear()
            assert self._clear_box is not None
            self._clear_box.close()
            self._clear_box = self._sealed_box
            self.links.pop().close()
        self.weakest = "privacy"
        self.decisions.clear()
        # What it was told over a link that ended may not have arrived, either.
        self._post(True, ToWorker.POLICY, 0, 0, [document.encode(), array("I", stages).tobytes()])
        self.ordered = self.links[0].submit(ToWorker.ECHO, b"")

    def has_room(self, ahead: bool) -> bool:
        """Whether it may have another task, `ahead` of when it is through with those that it has."""
        if not self.joined or self.leaves or self.suspect or self.stops:
            return False
        if not self.in_flight or not ahead:
            return not self.in_flight
        few = len(self.in_flight)
        return (self.load < WORK and few < FEW) or (few == 1 and self.load < LONG)

    def decide(self, security: Security, marks: Marks, labels: frozenset[str]) -> Decision:
        """How something goes to it."""
        key = (marks, labels)
        decision = self.decisions.get(key)
        if decision is None:
            decision = self.decisions[key] = security.decide(self.place, self.weakest, marks, labels)
        return decision

    def stage(self, number: int, parts: list[bytes], sealed: bool) -> None:
        """Sends it a stage's code, once."""
        self.staged.add(number)
        self._post(sealed, ToWorker.STAGE, number, 0, parts)

    def forget(self, number: int, sealed: bool) -> None:
        """Has it forget a stage's code, which went there over the same link."""
        self.staged.discard(number)
        self._post(sealed, ToWorker.FORGET, number, 0, [b""])

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
            self._asked, self._asked_at = self.links[0].submit(ToWorker.ECHO, b""), now
        return 0.0

    def close(self) -> None:
        """The links to it end."""
        for box in {id(box): box for box in (self._sealed_box, self._clear_box) if box is not None}.values():
            box.close()
        for link in self.links:
            link.close()
        if self.endpoint is not None:
            self.endpoint.close()
        self.joined = False

    def __str__(self) -> str:
        return f"{self.place.name} on {self.place.host}"


def follow(domain: Domain, controls: Sequence[Control], security: Security, stages: set[int]) -> dict[Control, Error]:
    """Has the manager's end and those of these workers follow another policy, and keep the code of these stages; who is
    gone by that.

    Links that are weaker than it says end at once, at both ends. Where one may be weaker, it is opened when the worker
    agrees.
    """
    told = {control: security.document_for(control.place) for control in controls}
    stale = [control for control in controls if told[control] != control.document]
    if any(control.has_clear() and told[control] != security.document for control in stale):
        # To an insecure host a link ends that the policy allows. One that seals everything ends it, and all others like
        # it: who may have one gets another.
        domain.set_policy(Policy.parse(SEALED))
        stale = [control for control in controls if control in stale or control.has_clear()]
    domain.set_policy(security.policy())
    gone = {}
    for control in stale:
        try:
            control.order(told[control], stages)
        except Error as error:
            gone[control] = error
    return gone
