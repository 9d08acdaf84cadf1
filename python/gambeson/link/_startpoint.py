"""Startpoints: to give away, and bound."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn, TypeAlias, Union

from gambeson import _native
from gambeson.link._answers import Answers
from gambeson.link._closing import Closing
from gambeson.link._future import Promise, within
from gambeson.link._pack import Pack

if TYPE_CHECKING:
    from typing_extensions import Buffer

# One buffer, or several, which are one message.
Payload: TypeAlias = Union["Buffer", Sequence["Buffer"]]


class Protection(enum.Enum):
    """How the messages of a pair are protected, strongest first."""

    PRIVACY = "privacy"
    """Sealed: nobody reads or alters."""
    INTEGRITY = "integrity"
    """Authenticated, in clear: nobody alters."""
    NONE = "none"
    """Neither."""


class Transport(enum.Enum):
    """How to get to an address."""

    TCP = 1
    """TCP."""
    SHM = 2
    """Shared memory on one host."""
    FABRIC = 3
    """An endpoint of one of libfabric's providers."""


@dataclass(frozen=True)
class Carrier:
    """What moves the bytes of a link, and where to."""

    transport: Transport
    """By which of the transports."""
    text: str
    """For people: `tcp 10.1.2.3:4000`, say."""


@dataclass(frozen=True)
class Caveat:
    """One condition on the use of a startpoint."""

    # What the native module makes it of.
    parts: tuple[str, list[int]]

    @staticmethod
    def methods(handlers: Iterable[int]) -> Caveat:
        """Only these handlers, in whatever order."""
        return Caveat(("methods", list(handlers)))

    @staticmethod
    def uses(count: int) -> Caveat:
        """So many requests, counted over everything that descends from here. The endpoint keeps the count until the
        earliest expiry that stands before it, so there should be one.
        """
        return Caveat(("uses", [count]))

    @staticmethod
    def expires(at: float | datetime) -> Caveat:
        """Nothing from this second on (since 1970, by the endpoint's clock).

        A `datetime` does as well.
        """
        return Caveat(("expires", [int(at.timestamp() if isinstance(at, datetime) else at)]))

    @staticmethod
    def memory(region: int, offset: int, length: int, *, read: bool = False, write: bool = False) -> Caveat:
        """Memory inside one of these windows only. A startpoint without this caveat reaches no memory: its
        endpoint's owner puts one into each.
        """
        return Caveat(("memory", [region, offset, length, read + 2 * write]))

    @staticmethod
    def protection(protection: Protection) -> Caveat:
        """Links at least so protected."""
        return Caveat((protection.value, []))


class Capability:
    """A capability to an endpoint of another process, or of ours.

    It is a secret: whoever has the bytes of one that is bound to nobody can use it.
    """

    def __init__(self, native: _native.NativeCapability) -> None:
        """`Endpoint.startpoint` and `decode` make one."""
        self._native = native

    @staticmethod
    def decode(encoded: Buffer) -> Capability:
        """Reads what `Startpoint::encode` wrote. Whether its endpoint takes it, only its owner can tell.

        Raises `StartpointRefused`.
        """
        return Capability(_native.NativeCapability.decode(encoded))

    def encode(self) -> bytes:
        """Its bytes, secret and all: they travel only where secrets may."""
        return self._native.encode()

    def __bytes__(self) -> bytes:
        """What `encode` gives."""
        return self.encode()

    @property
    def owner(self) -> bytes:
        """The domain that owns the endpoint: sessions must lead there."""
        return bytes(self._native.owner())

    @property
    def holder(self) -> bytes | None:
        """The domain that it is bound to; `None` is a bearer's."""
        holder = self._native.holder()
        return None if holder is None else bytes(holder)

    @property
    def class_name(self) -> str:
        """The class of its links, by which policies choose."""
        return self._native.class_name()

    @property
    def transforms(self) -> tuple[str, ...]:
        """The transform modules of its links."""
        return tuple(self._native.transforms())

    def narrow(self, *caveats: Caveat) -> Capability:
        """Narrows it.

        This one stays as it is. Raises `StartpointRefused` when there are too many caveats.
        """
        narrowed = self._native
        for caveat in caveats:
            narrowed = narrowed.narrow(*caveat.parts)
        return Capability(narrowed)

    def __reduce__(self) -> NoReturn:
        """A secret is given away on purpose."""
        raise TypeError(
            "a startpoint is a secret and is not pickled, since pickles end up in files, caches and queues; "
            "give bytes(startpoint) away where a secret may go, best of a copy that is bound to who gets it (copy_for)"
        )


class Startpoint(Closing):
    """One end of a link, from which remote service requests go to its endpoint. It is released when it is dropped.

    A context manager, too. Threads may share it. A payload is a buffer, or a sequence of buffers, which the handler
    gets as one message; of long ones what lies within a buffer is sealed straight from there.
    """

    def __init__(self, native: _native.NativeStartpoint, domain: object) -> None:
        """`Domain.startpoint` makes one, which keeps the domain."""
        self._native = native
        self._domain = domain

    @property
    def capability(self) -> Capability:
        """What it is bound by."""
        return Capability(self._native.capability())

    @property
    def protection(self) -> Protection:
        """How the link is protected: as the policies of both ends, the endpoint and the startpoint want it."""
        return Protection(self._native.protection())

    @property
    def carrier(self) -> Carrier | None:
        """What it goes over at present; `None` while the connection is lost.

        Raises `Lost` when the link is over.
        """
        found = self._native.carrier()
        return None if found is None else Carrier(Transport(found[0]), found[1])

    def prefer(self, transport: Transport | None, timeout: float | None = 10.0) -> None:
        """Goes on over this transport, or over what the rule says, and waits for the change at most so long. All links
        of its session go with it: a link that is to go its own way is bound by `Domain::startpoint_over`. Nothing is
        lost and nothing comes twice.

        `timeout` is in seconds. Raises `Lost`, `TimedOut`, `SystemRefused` when the endpoint is not to be reached so;
        the link stays where it is then.
        """
        self._native.prefer(None if transport is None else transport.value, timeout)

    def send(self, handler: int, payload: Payload = b"", timeout: float | None = None) -> None:
        """Sends a request that nobody answers.

        Waits at most `timeout` seconds for room; it goes out even after `TimedOut`.
        """
        self._native.post(handler, payload)
        self._native.flush(timeout)

    def post(self, handler: int, payload: Payload = b"") -> None:
        """Sends a request that nobody answers, and does not wait: what finds no room stays in memory. Who posts much
        asks `Startpoint.flush` now and then.
        """
        self._native.post(handler, payload)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until there was room for all that was sent, at most so long; whether there was.

        `timeout` is in seconds. Raises `TimedOut` when there was no room.
        """
        self._native.flush(timeout)

    def call(self, handler: int, payload: Payload = b"", timeout: float | None = None) -> bytes:
        """Sends a request and waits for its answer, at most so long.

        `timeout` is in seconds. Raises `HandlerRefused`, `StartpointRefused`, `TimedOut`, `Lost`.
        """
        return self._native.call(handler, payload, timeout)

    def call_into(self, handler: int, payload: Payload, into: Buffer, timeout: float | None = None) -> int:
        """`Startpoint.call` into memory that is there: `answer` is emptied first.

        `into` is anything with a writable buffer; the result is how many bytes came. Raises as `call`, and
        `BufferError` when there is too little room.
        """
        return self._native.call_into(handler, payload, into, timeout)

    def submit(self, handler: int, payload: Payload = b"") -> Future[bytes]:
        """Sends a request whose answer is waited for later, or awaited.

        The future is of the kind that executors give: `concurrent.futures.wait` takes it, `asyncio.wrap_future` makes
        it awaitable, and cancelling it cancels the request. With manual progress somebody has to make some.
        """
        return Promise(lambda done: self._native.submit(handler, payload, done))

    async def request(self, handler: int, payload: Payload = b"", timeout: float | None = None) -> bytes:
        """Sends a request whose answer is waited for later, or awaited.

        For asyncio: as `call`, and a task that is cancelled cancels the request.
        """
        return await within(self.submit(handler, payload), timeout)

    def stream(self, handler: int, payload: Payload = b"", timeout: float | None = None) -> Answers:
        """Sends a request that is answered by a stream.

        `timeout`, in seconds, is for each answer.
        """
        return Answers(self._native.stream(handler, payload), timeout)

    def pack(self, handler: int, size: int) -> Pack:
        """Begins to pack a request whose message will have `size` bytes. Over links with transform modules it is put
        together first.

        with startpoint.pack(handler, size) as pack:
                pack.put(head)
                pack.put(rows)
                answer = pack.call(timeout=5)
        """
        return Pack(self._native.pack(handler, size))

    def put(self, region: int, offset: int, payload: Buffer, timeout: float | None = None) -> None:
        """Puts bytes into a memory region of the endpoint, from `offset` on, and waits until they are there, at most so
        long. They land whole or not at all, in turn with the link's requests, other puts, and gets.

        `region` is a `Region.number`, `timeout` in seconds. Raises `HandlerRefused`, `StartpointRefused`, `TimedOut`,
        `Lost`.
        """
        self._native.put(region, offset, payload, timeout)

    def submit_put(self, region: int, offset: int, payload: Buffer) -> Future[bytes]:
        """A `Startpoint.put` that is waited for later, or awaited; its answer is empty.

        A future as that of `submit`.
        """
        return Promise(lambda done: self._native.submit_put(region, offset, payload, done))

    def get(self, region: int, offset: int, length: int, timeout: float | None = None) -> bytes:
        """As `get_into`, and the result is the bytes.

        Raises as `put`.
        """
        return self._native.get(region, offset, length, timeout)

    def get_into(self, region: int, offset: int, into: Buffer, timeout: float | None = None) -> None:
        """Gets as many bytes of a memory region of the endpoint as `into` has, from `offset` on; waits at most so long.
        No put is seen in part.

        `into` is anything with a writable buffer. Raises as `put`.
        """
        self._native.get_into(region, offset, into, timeout)

    def submit_get(self, region: int, offset: int, length: int) -> Future[bytes]:
        """A get of `length` bytes that is waited for later, or awaited.

        A future as that of `submit`.
        """
        return Promise(lambda done: self._native.submit_get(region, offset, length, done))

    def close(self) -> None:
        """Releases the link. What is under way goes on to its end."""
        self._native.close()

    def __reduce__(self) -> NoReturn:
        """A secret is given away on purpose."""
        raise TypeError(
            "a bound startpoint belongs to its process and is not pickled; give bytes(startpoint.capability) away "
            "where a secret may go, best of a copy that is bound to who gets it (Domain.copy_for)"
        )
