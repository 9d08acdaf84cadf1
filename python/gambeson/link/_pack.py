"""Requests that are packed buffer by buffer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from gambeson import _native
from gambeson.link._answers import Answers
from gambeson.link._closing import Closing
from gambeson.link._future import Promise, within

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Pack(Closing):
    """A request that is being packed. It belongs to the thread that began it, whose other requests over this link are
    refused meanwhile: they would wait for it. Any thread may drop it.

    A context manager, too: what is not sent at its end is given up.
    """

    def __init__(self, native: _native.NativePack) -> None:
        """`Startpoint.pack` makes one."""
        self._native = native

    def put(self, payload: Buffer, timeout: float | None = None) -> None:
        """Puts these bytes behind those that were put before. What of them is not sealed yet when it returns was
        copied. Waits, as `Startpoint.send` does, while there is no room or others' messages go first.

        `timeout` is in seconds; after `TimedOut`, or Ctrl-C, part of it may have been put. Raises `MessageUnfit` when
        there are more bytes than were said, or in another thread; `StartpointRefused`, `Lost`.
        """
        self._native.put(payload, timeout)

    def send(self, timeout: float | None = None) -> None:
        """Sends it; nobody answers.

        Waits at most `timeout` seconds for room. Raises as `put`, and `MessageUnfit` when fewer bytes were put than
        were said.
        """
        self._native.send(timeout)

    def call(self, timeout: float | None = None) -> bytes:
        """Sends it and waits for the answer, at most so long.

        `timeout` is in seconds. Raises as `send` and `Startpoint.call`.
        """
        return self._native.call(timeout)

    def submit(self) -> Future[bytes]:
        """Sends it; the answer is waited for later, or awaited.

        A future as that of `Startpoint.submit`. Raises as `send`.
        """
        return Promise(self._native.submit)

    async def request(self, timeout: float | None = None) -> bytes:
        """Sends it; the answer is waited for later, or awaited.

        For asyncio: as `call`. While puts wait for room, so does the loop.
        """
        return await within(self.submit(), timeout)

    def stream(self, timeout: float | None = None) -> Answers:
        """Sends it; a stream answers.

        `timeout`, in seconds, is for each answer. Raises as `send`.
        """
        return Answers(self._native.stream(), timeout)

    def close(self) -> None:
        """Gives it up, if it was not sent: its handler never sees it."""
        self._native.close()
