"""Futures of what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from gambeson import _native
from gambeson.link._errors import TimedOut

_T = TypeVar("_T")


class Promise(Future[_T]):
    """A future of something under way; to cancel it ends that, too."""

    def __init__(self, begin: Callable[[Callable[[bytes | None, BaseException | None], None]], _native.NativeTask]):
        super().__init__()
        self._task = begin(self._done)

    def _done(self, answer: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self.set_result(answer)
            else:
                self.set_exception(error)
        except InvalidStateError:
            pass

    def cancel(self) -> bool:
        if self.cancelled() or not super().cancel():
            return self.cancelled()
        self._task.cancel()
        # Whoever waits for several futures waits for this word, too.
        self.set_running_or_notify_cancel()
        return True


async def within(future: Future[_T], timeout: float | None, what: str = "no answer") -> _T:
    """What comes of it, for asyncio; a task that is cancelled cancels what is under way."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout)
    except TimedOut:
        raise
    except TimeoutError:
        raise TimedOut(f"{what} within {timeout} s") from None
