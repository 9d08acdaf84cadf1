"""A stream's items in a process of its own (`proxy="process"`), which iterates and pickles: the manager's interpreter
has no part in that (secure-muskel paper, section 4.6).

The process is a copy of this one, as it is when the stream begins. It goes on until what it has made fills the socket
between them, and learns how many items to put together from whoever takes them.

    copy: iterates, pickles ── tokens: head, buffers ──> manager
         <── how many items are to be one token ─────────
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import struct
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from gambeson.farm._errors import FarmError, RemoteTraceback
from gambeson.farm._recruit import FORKING
from gambeson.farm._stream import Tokens
from gambeson.farm._token import Token

_LENGTH = struct.Struct("<Q")
BUFFER = 4 << 20
"""Bytes that are made ahead, about."""
PIECE = 1 << 20
"""Bytes that are taken from the socket at a time."""


class Source(Tokens):
    """Tokens of a stream that another process iterates over."""

    def __init__(self, inputs: Iterator[Any]) -> None:
        super().__init__(inputs)
        self._count = 0
        self._socket, there = socket.socketpair()
        for end in (self._socket, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        with FORKING, warnings.catch_warnings():
            # The copy has this thread alone, and calls nothing that another one may have been in the midst of.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if self._process == 0:
            self._socket.close()
            _make(Tokens(inputs), there)
        there.close()

    def next(self, count: int) -> list[Token]:
        """At most so many further items, as tokens of items with the same labels.

        Raises what iterating raised.
        """
        if count != self._count:
            self._count = count
            with contextlib.suppress(OSError):
                self._socket.sendall(_LENGTH.pack(count))
        head = self._take(_LENGTH.unpack(self._take(_LENGTH.size))[0])
        # It is this program's own other half.
        error, self.ended, heads = pickle.loads(head)
        if error is not None:
            raised, text = error
            raised.__cause__ = RemoteTraceback(text)
            raise raised
        return [Token([self._take(size) for size in sizes], items, labels) for items, labels, sizes in heads]

    def _take(self, size: int) -> bytearray:
        taken = bytearray(size)
        room = memoryview(taken)
        while room:
            count = self._socket.recv_into(room[:PIECE])
            if count == 0:
                what = f"the process that iterates over the stream ended: {self._how()}"
                raise FarmError(what)
            room = room[count:]
        return taken

    def _how(self) -> str:
        _, status = os.waitpid(self._process, 0)
        self._process = 0
        code = os.waitstatus_to_exitcode(status)
        return f"by signal {-code}" if code < 0 else f"with status {code}"

    def close(self) -> None:
        """The process ends, whatever it is at."""
        self._socket.close()
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, 9)
            os.waitpid(self._process, 0)
            self._process = 0


def _make(tokens: Tokens, out: socket.socket) -> NoReturn:
    """What the other process does."""
    threading.Thread(target=_follow, args=(out,), daemon=True).start()
    try:
        count = _LENGTH.unpack(out.recv(_LENGTH.size, socket.MSG_WAITALL))[0]
        while not tokens.ended:
            while select.select([out], [], [], 0)[0]:
                count = _LENGTH.unpack(out.recv(_LENGTH.size, socket.MSG_WAITALL))[0]
            try:
                made = tokens.next(count)
            except Exception as error:
                _send(out, ((_picklable(error), traceback.format_exc()), True, []))
                break
            sizes = [[memoryview(part).nbytes for part in token.parts] for token in made]
            heads = [(token.count, token.labels, size) for token, size in zip(made, sizes, strict=True)]
            _send(out, (None, tokens.ended, heads))
            for token in made:
                for part in token.parts:
                    out.sendall(part)
    except (OSError, struct.error):
        # Nobody wants more.
        pass
    finally:
        # Nothing of the copied program runs here: no other thread is, and nothing is flushed twice.
        os._exit(0)


def _follow(out: socket.socket) -> None:
    """The process ends with the one that it is a copy of, whatever it waits for."""
    ended = select.poll()
    ended.register(out, select.POLLRDHUP)
    ended.poll()
    os._exit(0)


def _send(out: socket.socket, head: tuple[Any, bool, list[Any]]) -> None:
    said = pickle.dumps(head, 5)
    out.sendall(_LENGTH.pack(len(said)))
    out.sendall(said)


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return FarmError(f"{type(error).__name__}: {error}")
    return error
