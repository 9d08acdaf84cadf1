"""Processes that were started together."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from gambeson import _native
from gambeson.launch._open import OPEN
from gambeson.link import Capability
from gambeson.link._closing import Closing
from gambeson.link._future import Promise

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Startpoint(Promise[Capability]):
    def _done(self, answer: Any, error: BaseException | None) -> None:
        super()._done(None if answer is None else Capability.decode(answer), error)


class _Status(Promise[int]):
    def _done(self, answer: Any, error: BaseException | None) -> None:
        super()._done(None if answer is None else -answer[1] if answer[0] else answer[1], error)


class Process:
    """One of them."""

    def __init__(self, native: _native.NativeProcesses, number: int, host: str) -> None:
        """`Processes` has them."""
        self._native = native
        self.number = number
        """Its place among the processes that were started together, from 0."""
        self.host = host
        """The name of its host."""

    @property
    def pid(self) -> int | None:
        """Its number on its host, once it runs."""
        return self._native.pid(self.number)

    @cached_property
    def startpoint(self) -> Future[Capability]:
        """The startpoint that it hands over once it is ready (`Child.ready`). `Lost` says how it ended before that, or
        why it was not started.
        """
        return _Startpoint(lambda done: self._native.submit_startpoint(self.number, done))

    @cached_property
    def status(self) -> Future[int]:
        """How it ended: its status, or the negative number of a signal. `Lost` says why it was not started, or that
        nobody knows.
        """
        return _Status(lambda done: self._native.submit_status(self.number, done))

    def write(self, text: Buffer) -> None:
        """Writes to its standard input, and waits for room. Nothing to write ends that.

        Raises `Lost`: it does not run yet, or its host is gone.
        """
        self._native.input(self.number, text)

    def send_signal(self, number: int | signal.Signals) -> None:
        """Sends a signal to it, and to what it has started.

        Raises `Lost`.
        """
        self._native.signal(self.number, int(number))

    def resize(self, rows: int, columns: int) -> None:
        """Tells it the size of its terminal.

        Raises `Lost`.
        """
        self._native.window(self.number, rows, columns)


class Processes(Closing, Sequence[Process]):
    """Processes that were started together: a sequence of them.

    A context manager, too. They end when it is closed, or this program ends, however that comes.
    """

    def __init__(self, native: _native.NativeProcesses, hosts: Sequence[str]) -> None:
        """`Creator.start_process` makes one."""
        self._native = native
        self._processes = [Process(native, number, host) for number, host in enumerate(hosts)]
        OPEN.add(self)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._processes)

    @overload
    def __getitem__(self, at: int) -> Process: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Process]: ...
    def __getitem__(self, at: int | slice) -> Process | Sequence[Process]:
        """The processes by their numbers."""
        return self._processes[at]

    def __iter__(self) -> Iterator[Process]:
        """All of them, in turn."""
        return iter(self._processes)

    def __hash__(self) -> int:
        """Each is one of its own."""
        return id(self)

    def send_signal(self, number: int | signal.Signals) -> None:
        """Sends a signal to all of them, and to what they have started.

        Raises `Lost`.
        """
        self._native.signal(None, int(number))

    def close(self) -> None:
        """Ends them, if they have not."""
        self._native.close()
