"""Processes that `start_process` made."""

from __future__ import annotations

from collections.abc import Iterable

from gambeson import _native
from gambeson.launch._open import OPEN
from gambeson.link import Capability, Domain, Endpoint, Startpoint
from gambeson.link._closing import Closing


class Child(Closing):
    """What a process has from its creator: a domain of their job, and what the creator gave it.

    A context manager, too: it closes at the end, and its domain with it.
    """

    def __init__(self, native: _native.NativeChild) -> None:
        """`init_process` makes one."""
        self._native = native
        self.number = native.number()
        """Its place among the processes that were started together, from 0."""
        self.domain = Domain._of(native.domain())
        """Its place among links. Processes of one creator trust each other by their job's secret."""
        OPEN.add(self)

    @property
    def context(self) -> bytes:
        """What the creator said to it, in secret."""
        return self._native.context()

    def ready(self, own: Endpoint | Capability, timeout: float | None = 30.0) -> Startpoint | None:
        """Hands the creator a startpoint to an endpoint of this process's domain: what `Process.startpoint` is waited
        for over there. The initial link to the creator comes back, if that has given a startpoint for one.

        Raises `Lost`, `Refused`, `TimedOut`: the creator is gone, does not wait for this process any more, or this was
        said already.
        """
        capability = own.startpoint() if isinstance(own, Endpoint) else own
        creator = self._native.ready(capability._native, timeout)
        return None if creator is None else Startpoint(creator, self.domain)

    def close(self) -> None:
        """Closes its domain."""
        self._native.close()
        self.domain.close()


def init_process(*, listen: Iterable[str] = ()) -> Child:
    """Takes this process's security context, and opens its domain. It listens at these addresses; without any, at the
    one of this host that its creator is reached from.

    Raises `Refused` when `start_process` did not make this process, or its context was taken already, and `ValueError`
    for what is no address.
    """
    return Child(_native.init_process(list(listen)))
