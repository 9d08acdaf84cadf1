"""The domains of a process: one for each listener, and one for all that it connects to.

A domain listens where it was opened to and cannot connect to itself; a scheduler and its client may be one process.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from gambeson import _native
from gambeson.dask._settings import Settings
from gambeson.link import Domain

LINGER = 1.0
"""So long the endpoint of a closed comm stays: what the other end has on its way is not to be refused."""

_T = TypeVar("_T")


class Place:
    """A domain, and who uses it: comms, and the listener it was opened for."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._lock = threading.Lock()
        self._users = 1
        self._lingering: deque[tuple[float, _native.NativeEndpoint]] = deque()

    def hold(self) -> None:
        """Somebody uses it, too."""
        with self._lock:
            self._users += 1

    def release(self, *endpoints: _native.NativeEndpoint) -> None:
        """Somebody uses it no longer, nor these endpoints of it; with the last one it closes, which takes as long as
        what is left to be sent.
        """
        with self._lock:
            self._users -= 1
            over = self._users == 0
            self._lingering.extend((time.monotonic(), endpoint) for endpoint in endpoints)
        if over:
            _closing.add(closed := elsewhere(self.domain.close))
            closed.add_done_callback(_closing.discard)
        self.sweep()

    def sweep(self) -> None:
        """Closes the endpoints that have lingered for long enough."""
        past = []
        with self._lock:
            while self._lingering and (self._users == 0 or self._lingering[0][0] <= time.monotonic() - LINGER):
                past.append(self._lingering.popleft()[1])
        for one in past:
            one.close()


_closing: set[Future[None]] = set()
"""Domains that are being closed, and whose ports may be taken until they are."""


def closing() -> list[Future[None]]:
    """What is being closed."""
    return list(_closing)


def elsewhere(work: Callable[..., _T], *arguments: Any) -> Future[_T]:
    """Does something that waits in a thread of its own, which ends with it."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="gambeson-dask").start()
    return future


_lock = threading.Lock()
_connecting: dict[tuple[Any, ...], Place] = {}


def connecting(settings: Settings, local: str) -> Place:
    """The domain for connections that go out from this address of the host, held for the caller."""
    address = stated(local)
    key = (os.getpid(), settings, address)
    with _lock:
        place = _connecting.get(key)
        if place is None:
            place = _connecting[key] = Place(settings.open(None, address))
        place.hold()
    return place


def stated(address: str) -> str | None:
    """The address as what policies know a host by; others cannot reach a loopback."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return None if found.is_loopback or found.is_unspecified else str(found)
