"""A comm: a link in each direction, with an endpoint at each end for what comes.

    ours                                            theirs
    outbox ── DATA ..., CLOSE ── link ──> endpoint, inbox
           ── WATCH, never answered ────> held until they close; so its end says that they have, or that they are gone
    inbox, endpoint <── link ── DATA ..., CLOSE ── outbox

A message of Dask's is one message of the link for each of its large buffers, so that each has memory of its own at the
other end, as over TCP. What nobody reads keeps the link's window taken: a slow reader slows the writer's link down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Sequence
from typing import Any

from distributed.comm.core import Comm, CommClosedError
from distributed.comm.utils import from_frames, to_frames
from distributed.utils import nbytes

from gambeson import _native, link
from gambeson.dask._place import LINGER, Place

DATA, CLOSE, WATCH = 1, 2, 3
OVER = 4
"""Put into the own inbox: nothing comes any more."""
MESSAGE_MAX = 1 << 40
OWN_MEMORY = 64 << 10
"""Buffers from this length on are messages of their own."""
LOOK = 1.0
"""So often a reader whose other end has closed without a last word looks whether the session is there."""
PATIENCE = 10.0
"""Who closes waits at most so long for its long messages to be taken."""

_SEALED = link.Caveat.protection(link.Protection.PRIVACY)

logger = logging.getLogger("distributed.comm.gambeson")


class Ends:
    """What a comm has of links; it goes in any thread."""

    def __init__(self, place: Place) -> None:
        """The own end, to which others may be given a startpoint."""
        self.place = place
        self.inbox = _native.NativeInbox()
        self._held = _native.NativeInbox()
        inboxes = [(DATA, self.inbox), (CLOSE, self.inbox), (WATCH, self._held)]
        # Whatever a job's policy says: Dask may require encryption, and what a message has in it nobody here knows.
        self._endpoint = place.domain._native.mailbox(inboxes, None, 0, "dask", "privacy", MESSAGE_MAX)
        self.outbox: _native.NativeOutbox | None = None
        self.startpoint: link.Startpoint | None = None
        self._watch: _native.NativeTask | None = None
        self.gone = False
        place.hold()

    def capability(self) -> bytes:
        """What the other end binds. It is a secret."""
        return self._endpoint.startpoint([]).encode()

    def bind(self, capability: bytes, timeout: float) -> None:
        """Opens the link to the other end; it waits."""
        self.startpoint = self.place.domain.startpoint(link.Capability.decode(capability).narrow(_SEALED), timeout)
        self.outbox = _native.NativeOutbox(self.startpoint._native)

    def watch(self, over: Any) -> None:
        """Has `over` called, in another thread, with why the other end has gone, once it has."""
        assert self.startpoint is not None
        self._watch = self.startpoint._native.submit(WATCH, b"", lambda _, error: over(error))

    def close(self) -> None:
        """Gives all of it back. What was posted still goes."""
        self._watch = None
        self._held.close()
        self.inbox.close()
        if self.outbox is not None:
            self.outbox.close()
        if self.startpoint is not None:
            self.startpoint.close()
        self.place.release(self._endpoint)


class Gambeson(Comm):
    """A comm over a pair of links."""

    # Links split what is long themselves, and a buffer that stays whole needs no copy to be put together.
    max_shard_size = MESSAGE_MAX

    def __init__(self, ends: Ends, local: str, peer: str, deserialize: bool = True) -> None:
        """In the loop that will read and write; `ends` are bound."""
        super().__init__(deserialize=deserialize)
        self._local_addr = local
        self._peer_addr = peer
        self._loop = asyncio.get_running_loop()
        self._ends: Ends | None = ends
        self._waiter: asyncio.Future[None] | None = None
        self._finalizer = weakref.finalize(self, _dangling, ends, f"{local} and {peer}")
        self._finalizer.atexit = False
        loop, me = self._loop, weakref.ref(self)

        def over(error: BaseException | None) -> None:
            def tell() -> None:
                if (comm := me()) is not None:
                    comm._peer_gone(error)

            # A loop that has ended has nobody who would read.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        ends.watch(over)

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    def closed(self) -> bool:
        return self._ends is None or self._ends.gone

    async def read(self, deserializers: Any = None) -> Any:
        frames: list[bytes | memoryview] = []
        try:
            more = 1
            while more:
                kind, more, parts = await self._taken()
                if kind != DATA:
                    self._part()
                    raise CommClosedError(f"in {self!r}: {self._why(kind, parts)}")
                frames += parts
        except link.Lost as cause:
            self.abort()
            raise CommClosedError(f"in {self!r}: {cause}") from cause
        except BaseException:
            # Of the message some may have been taken, so nothing could go on from here.
            self.abort()
            raise
        try:
            return await from_frames(
                frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
            )
        except EOFError:
            self.abort()
            raise CommClosedError(f"in {self!r}: a message that came cannot be read") from None

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        if self.closed():
            raise CommClosedError(f"in {self!r}: it is closed")
        context = {"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options}
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context=context,
            frame_split_size=self.max_shard_size,
        )
        try:
            outbox = self._outbox()
            messages = split(frames)
            for left, parts in zip(range(len(messages) - 1, -1, -1), messages, strict=True):
                outbox.post(DATA, left, 0, parts)
        except link.Error as cause:
            self.abort()
            raise CommClosedError(f"in {self!r}: {cause}") from cause
        except BaseException:
            # Of the message some may be on its way, so nothing could go on from here.
            self.abort()
            raise
        return sum(map(nbytes, frames))

    async def close(self) -> None:
        ends = self._ends
        if ends is None:
            return
        self._leave()
        deadline = self._loop.time() + PATIENCE
        try:
            while not ends.gone and ends.outbox is not None and ends.outbox.waiting():
                if self._loop.time() > deadline:
                    break
                await asyncio.sleep(0.005)
        finally:
            self._give_back(ends)

    def abort(self) -> None:
        if (ends := self._ends) is not None:
            self._leave()
            self._give_back(ends)

    def _give_back(self, ends: Ends) -> None:
        ends.close()
        if not self._loop.is_closed():
            self._loop.call_later(LINGER, ends.place.sweep)

    def _leave(self) -> None:
        """Says that nothing follows, and wakes who reads."""
        ends, self._ends = self._ends, None
        self._finalizer.detach()
        try:
            if ends is not None and ends.outbox is not None and not ends.gone:
                ends.outbox.post(CLOSE, 0, 0, [b""])
        except link.Error:
            pass  # Then nobody is left who would want to know.
        self._wake()

    def _outbox(self) -> _native.NativeOutbox:
        if self._ends is None or self._ends.outbox is None or self._ends.gone:
            raise CommClosedError(f"in {self!r}: it was closed while it wrote")
        return self._ends.outbox

    async def _taken(self) -> tuple[int, int, list[bytes | memoryview]]:
        """The next message of the link: its kind, how many follow it, and its buffers."""
        while (ends := self._ends) is not None:
            for _, kind, more, _, parts in ends.inbox.take(1, 0.0):
                return kind, more, parts
            await self._readable(ends)
        raise CommClosedError(f"in {self!r}: it is closed")

    async def _readable(self, ends: Ends) -> None:
        """Waits until there may be something in the inbox."""
        self._waiter = self._loop.create_future()
        descriptor = ends.inbox.fileno()
        self._loop.add_reader(descriptor, self._wake)
        try:
            if ends.gone:
                await asyncio.wait([self._waiter], timeout=LOOK)
                assert ends.startpoint is not None
                if self._ends is not None:
                    _ = ends.startpoint.carrier  # Raises when the session is over.
            else:
                await self._waiter
        finally:
            self._loop.remove_reader(descriptor)
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _peer_gone(self, error: BaseException | None) -> None:
        """The other end closed, or is not to be reached any more."""
        if (ends := self._part()) is not None and isinstance(error, link.Lost):
            ends.inbox.put(0, OVER, 0, 0, str(error).encode())
        self._wake()

    def _part(self) -> Ends | None:
        """Nothing goes out any more."""
        if self._ends is not None:
            self._ends.gone = True
        return self._ends

    @staticmethod
    def _why(kind: int, parts: Sequence[bytes | memoryview]) -> str:
        if kind == CLOSE:
            return "the other end closed it"
        return bytes(parts[0]).decode() if kind == OVER else "what came is no message of Dask's"


def split(frames: Sequence[bytes | memoryview]) -> list[list[bytes | memoryview]]:
    """The buffers of a message as those of messages that follow each other: those with much in them each alone, so that
    memory of one is free as soon as nobody uses it, whoever still uses another.
    """
    messages: list[list[bytes | memoryview]] = [[]]
    for frame in frames:
        if nbytes(frame) >= OWN_MEMORY and any(map(nbytes, messages[-1])):
            messages.append([])
        messages[-1].append(frame)
    return messages


def _dangling(ends: Ends, who: str) -> None:
    # Dask forgets comms that the other end has closed.
    if not ends.gone:
        logger.warning("Closing a dangling comm between %s", who)
    ends.close()
