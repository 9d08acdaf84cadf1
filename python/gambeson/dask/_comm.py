"""A comm: a link in each direction, with an endpoint at each end for what comes.

A message of Dask's is one message of the link for each of its large buffers, so that each has memory of its own at the
other end, as over TCP. What nobody reads keeps the link's window taken: a slow reader slows the writer's link down.

Where there is a link that is not sealed, large buffers of data that nobody labelled go over that; each sealed message
says how many of them are behind it.
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
from gambeson.dask import _traffic
from gambeson.dask._ends import CLOSE, DATA, MESSAGE_MAX, Ends
from gambeson.dask._labels import Unlabelled
from gambeson.dask._place import LINGER

OVER = 5
"""Put into the own inboxes: nothing comes any more."""
OWN_MEMORY = 64 << 10
"""Buffers from this length on are messages of their own."""
ASKED_FOR_DATA = ("get_data", "gather")
"""What a worker and the scheduler are asked for keys with."""
LOOK = 1.0
"""So often a reader whose other end has closed without a last word looks whether the session is there."""
PATIENCE = 10.0
"""Who closes waits at most so long for its long messages to be taken."""

logger = logging.getLogger("distributed.comm.gambeson")


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
        self._asked: frozenset[Any] = frozenset()
        """The keys whose data was asked for last, if nobody had labelled any of them."""
        self.unlabelled: Unlabelled | None = None
        """What knows of keys whether they have no label; without it, nothing does."""
        protection = _traffic.SEALED if ends.clear_outbox is None else _traffic.AUTHENTICATED
        self._traffic = _traffic.opened(peer, ends.accepted, protection, ends.rule)
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
                more, behind, parts = await self._data()
                frames += parts
                for _ in range(behind):
                    frames += (await self._data(clear=True))[2]
        except link.Lost as cause:
            self.abort()
            raise CommClosedError(f"in {self!r}: {cause}") from cause
        except BaseException:
            # Of the message some may have been taken, so nothing could go on from here.
            self.abort()
            raise
        try:
            msg = await from_frames(
                frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
            )
        except EOFError:
            self.abort()
            raise CommClosedError(f"in {self!r}: a message that came cannot be read") from None
        self._asked = self._unlabelled_keys(msg)
        return msg

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
            clear = self._clear_outbox(msg)
            messages = split(frames) if clear is None else split_apart(frames)
            # What is in clear goes first: who reads that something is behind a message will get it.
            for _, parts in messages:
                for part in parts:
                    assert clear is not None
                    clear.post(DATA, 0, 0, [part])
            for left, (parts, behind) in zip(range(len(messages) - 1, -1, -1), messages, strict=True):
                outbox.post(DATA, left, len(behind), parts)
        except link.Error as cause:
            self.abort()
            raise CommClosedError(f"in {self!r}: {cause}") from cause
        except BaseException:
            # Of the message some may be on its way, so nothing could go on from here.
            self.abort()
            raise
        authenticated = sum(nbytes(part) for _, parts in messages for part in parts)
        total: int = sum(map(nbytes, frames))
        _traffic.count(self._traffic, total - authenticated, authenticated)
        return total

    async def close(self) -> None:
        ends = self._ends
        if ends is None:
            return
        self._leave()
        deadline = self._loop.time() + PATIENCE
        try:
            while not ends.gone and ends.waiting():
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

    def _unlabelled_keys(self, msg: Any) -> frozenset[Any]:
        if self._ends is None or self._ends.clear_outbox is None or self.unlabelled is None:
            return frozenset()
        if not isinstance(msg, dict) or msg.get("op") not in ASKED_FOR_DATA:
            return frozenset()
        keys = frozenset(msg.get("keys") or ())
        return keys if self.unlabelled(keys) else frozenset()

    def _clear_outbox(self, msg: Any) -> _native.NativeOutbox | None:
        """Where large buffers of this message go if they need not be sealed: if it is the answer to who asked for data,
        and nobody has labelled any of that, when it was asked for and now.
        """
        if not self._asked or not isinstance(msg, dict) or msg.keys() != {"status", "data"} or msg["status"] != "OK":
            return None
        assert self._ends is not None and self.unlabelled is not None
        keys = msg["data"].keys()
        return self._ends.clear_outbox if keys <= self._asked and self.unlabelled(keys) else None

    async def _data(self, clear: bool = False) -> tuple[int, int, list[bytes | memoryview]]:
        """The next message of the link, or of that which is not sealed: how many follow it, how many of the other are
        behind it, and its buffers.
        """
        kind, more, behind, parts = await self._taken(clear)
        if kind != DATA or (clear and behind):
            self._part()
            raise CommClosedError(f"in {self!r}: {self._why(kind, parts)}")
        return more, behind, parts

    async def _taken(self, clear: bool) -> tuple[int, int, int, list[bytes | memoryview]]:
        while (ends := self._ends) is not None:
            inbox = ends.clear_inbox if clear else ends.inbox
            if inbox is None:
                raise link.Lost("the other end refers to a link that there is not")
            for _, kind, more, behind, parts in inbox.take(1, 0.0):
                return kind, more, behind, parts
            await self._readable(ends, inbox)
        raise CommClosedError(f"in {self!r}: it is closed")

    async def _readable(self, ends: Ends, inbox: _native.NativeInbox) -> None:
        """Waits until there may be something in the inbox."""
        self._waiter = self._loop.create_future()
        descriptor = inbox.fileno()
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
            for inbox in (ends.inbox, ends.clear_inbox):
                if inbox is not None:
                    inbox.put(0, OVER, 0, 0, str(error).encode())
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


Frames = list[bytes | memoryview]


def split(frames: Sequence[bytes | memoryview]) -> list[tuple[Frames, Frames]]:
    """The buffers of a message as those of messages that follow each other: those with much in them each alone, so that
    memory of one is free as soon as nobody uses it, whoever still uses another. Nothing is behind them.
    """
    messages: list[tuple[Frames, Frames]] = [([], [])]
    for frame in frames:
        if nbytes(frame) >= OWN_MEMORY and any(map(nbytes, messages[-1][0])):
            messages.append(([], []))
        messages[-1][0].append(frame)
    return messages


def split_apart(frames: Sequence[bytes | memoryview]) -> list[tuple[Frames, Frames]]:
    """The same where buffers with much in them go over another link: each message, and which of them are behind it. The
    first buffer says what the message is, and is in none.
    """
    messages: list[tuple[Frames, Frames]] = [([frames[0]], [])]
    for frame in frames[1:]:
        if nbytes(frame) >= OWN_MEMORY:
            messages[-1][1].append(frame)
            continue
        if messages[-1][1]:
            messages.append(([], []))
        messages[-1][0].append(frame)
    return messages


def _dangling(ends: Ends, who: str) -> None:
    # Dask forgets comms that the other end has closed.
    if not ends.gone:
        logger.warning("Closing a dangling comm between %s", who)
    ends.close()
