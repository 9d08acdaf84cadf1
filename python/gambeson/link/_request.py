"""What a handler is asked."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, TypeAlias, Union

from gambeson import _native
from gambeson.link._errors import HandlerRefused
from gambeson.link._identity import Peer

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Request:
    """A request at its endpoint, as a threaded or queued handler gets it."""

    def __init__(self, native: _native.NativeRequest) -> None:
        """Handlers get one."""
        self._native = native
        self.handler: int = native.handler()
        """The handler's number."""
        self.payload: bytes = native.payload()
        """What was sent."""

    @property
    def peer(self) -> Peer:
        """Who sent it, proved."""
        key, name, roles, host, address = self._native.peer()
        return Peer(bytes(key), name, tuple(roles), host, address)

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for an answer any more: the request was cancelled, it was one-way, or the link is
        over.
        """
        return self._native.is_cancelled()

    def answer(self, payload: Buffer) -> None:
        """Answers; of a stream, the last word. One-way requests take none.

        What the handler returns does the same. Raises `HandlerRefused` when the request was answered before.
        """
        self._native.answer(payload)

    def item(self, payload: Buffer) -> None:
        """Sends one of a stream of answers, and waits until its reader has room for it.

        What the handler yields does the same; a generator is closed when nobody takes its answers any more.
        """
        self._native.item(payload)

    def refuse(self, why: str) -> None:
        """Says no, and why.

        Raising `HandlerRefused` does the same.
        """
        self._native.refuse(why)

    def finish(self) -> None:
        """Ends a stream of answers, as the handler's end does; who waits for one answer hears that there is none."""
        self._native.close()


Handler: TypeAlias = Callable[[Request], Union["Buffer", Iterator["Buffer"], None]]


def serving(handler: Handler) -> Callable[[_native.NativeRequest], None]:
    """The handler as the native module calls it: nothing that it raises gets lost."""

    def serve(native: _native.NativeRequest) -> None:
        try:
            answer = handler(Request(native))
            if isinstance(answer, Iterator):
                try:
                    for item in answer:
                        native.item(item)
                finally:
                    # A generator whose answers nobody takes any more hears of it where it yields.
                    if isinstance(answer, Generator):
                        answer.close()
            elif answer is not None:
                native.answer(answer)
        except HandlerRefused as refused:
            _refuse(native, str(refused))
        except Exception as error:
            _refuse(native, f"{type(error).__name__}: {error}")
        except BaseException as error:
            _refuse(native, f"{type(error).__name__}: {error}")
            raise
        finally:
            native.close()

    return serve


def _refuse(native: _native.NativeRequest, why: str) -> None:
    if native.is_open():
        native.refuse(why)
