"""Streams of answers."""

from __future__ import annotations

from concurrent.futures import Future

from gambeson import _native
from gambeson.link._closing import Closing
from gambeson.link._future import Promise, within


class Answers(Closing):
    """A stream of answers; dropping it cancels the request.

    An iterator, and an asynchronous one; `close`, or the end of a `with`, cancels the request.
    """

    def __init__(self, native: _native.NativeAnswers, timeout: float | None) -> None:
        """`Startpoint.stream` makes one."""
        self._native = native
        self._timeout = timeout

    def __iter__(self) -> Answers:
        """The stream."""
        return self

    def __next__(self) -> bytes:
        """The next answer, waited for at most so long; `None` at the stream's end.

        Raises `HandlerRefused`, `StartpointRefused`, `TimedOut`, `Lost`.
        """
        answer = self._native.next(self._timeout)
        if answer is None:
            raise StopIteration
        return answer

    def __aiter__(self) -> Answers:
        """The stream."""
        return self

    async def __anext__(self) -> bytes:
        """The next answer, for tasks, with `Progress.AUTO`: what a stream of the futures' world is made of.

        Raises as `__next__`.
        """
        future: Future[bytes | None] = Promise(self._native.submit_next)
        answer = await within(future, self._timeout, "no further answer")
        if answer is None:
            raise StopAsyncIteration
        return answer

    def close(self) -> None:
        """Takes no further answers: the handler hears of it."""
        self._native.close()
