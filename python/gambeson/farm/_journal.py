"""The journal of a farm: results of tasks in a file, sealed, so that a program that was ended goes on where it was.

    magic "GMBSNJNL" | format's version u16 | id 16 | label's version u32 | data key, wrapped 60
    entry: length u64 | name 32 | CRC-32 of both u32 | sealed: nonce 12 | message of the result's buffers | tag 16
    entry ...

Big endian. Keys, names and what is sealed are those of crates/gambeson-keys/src/journal.rs. An entry is called after
all that its task depended on: what the stage computes by (`_fingerprint`), what it was given, and which one it was of
equal ones. So an entry is found by the very task alone, and whatever else the file holds is left alone.

Entries are only ever added. One write adds each, so a program that is killed leaves whole ones, but for the last, which
is cut off by the next that comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import stat
import struct
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gambeson import _native
from gambeson.farm._errors import JournalError
from gambeson.farm._fingerprint import Fingerprints
from gambeson.farm._token import Token

if TYPE_CHECKING:
    from gambeson.farm._skeleton import Stage
    from gambeson.farm._task import Task

_log = logging.getLogger("gambeson.farm")

_MAGIC: Final = b"GMBSNJNL"
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sH16sI60s")
_ENTRY: Final = struct.Struct(">Q32sI")
_NAMED: Final = struct.Struct(">Q32s")
_LEAST: Final = 12 + 16 + 16
"""Bytes of a sealed entry whose message has no buffers."""

SYNC: Final = 1.0
"""Seconds of results that are lost at the most if the host goes down; if the program alone does, none are."""

LEAVING: Final = 1.0
"""Seconds within which what a killed program was about to start lets go of its journal."""

_counted: dict[bytes, Counter[bytes]] = {}
"""By journal: how often tasks came in this process, those of farms before among them."""


@dataclass(frozen=True)
class Journal:
    """A file from which a farm goes on that was ended: `Manager(program, journal=Journal("run.journal", label="it"))`.

    What tasks result in is kept in it, sealed under a label of the key store `keys`, the user's own without it;
    `passphrase` opens that if it is locked. The same program, run again on the same items, computes what is missing,
    and has the rest from there. What stages print, write and count elsewhere does not happen again.
    """

    path: str | os.PathLike[str]
    label: str
    keys: str | os.PathLike[str] | None = None
    passphrase: str | None = None

    def __repr__(self) -> str:
        return f"Journal({os.fspath(self.path)!r}, label={self.label!r})"


class Records:
    """A journal that is open: what it has, and where more goes."""

    def __init__(self, journal: Journal) -> None:
        self._path = os.fspath(journal.path)
        self._fingerprints = Fingerprints()
        self._said: set[str] = set()
        self._places: dict[bytes, tuple[int, int]] = {}
        self._synced = 0
        self._synced_at = 0.0
        try:
            # Nobody else's from the beginning.
            self._file = open(self._path, "r+b", buffering=0, opener=_opened)  # noqa: SIM115
        except OSError as error:
            raise self._error(f"it cannot be opened: {error.strerror}") from None
        try:
            self._begin(journal)
        except OSError as error:
            self._file.close()
            # The system's word, or the key store's sentence.
            raise self._error(error.strerror or str(error)) from None
        except JournalError:
            self._file.close()
            raise

    def _error(self, what: str) -> JournalError:
        return JournalError(f"the journal {self._path}: {what}")

    # --- opening

    def _begin(self, journal: Journal) -> None:
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise self._error("it is no file, but a folder or a device; name one that is, or none")
        self._lock()
        store = None if journal.keys is None else Path(journal.keys)
        header = self._file.read(_HEADER.size) or b""
        keys = _native.NativeJournalKeys
        if not header:
            id_ = secrets.token_bytes(16)
            self._keys, version, wrapped = keys.create(store, journal.passphrase, journal.label, id_)
            os.fchmod(self._file.fileno(), 0o600)
            self._file.write(_HEADER.pack(_MAGIC, _VERSION, id_, version, wrapped))
            os.fsync(self._file.fileno())
        else:
            if header[: len(_MAGIC)] != _MAGIC or len(header) < _HEADER.size:
                raise self._error("it is no journal of a farm's; give a name that no other file has")
            _, form, id_, version, wrapped = _HEADER.unpack(header)
            if form != _VERSION:
                what = f"it has format {form}, and this Gambeson knows format {_VERSION}; use the release that wrote it"
                raise self._error(f"{what}, or begin another one")
            self._keys = keys.open(store, journal.passphrase, journal.label, id_, (version, wrapped))
        self._end = _HEADER.size
        self._scan()
        self._counts = _counted.setdefault(id_, Counter())

    def _lock(self) -> None:
        deadline = time.monotonic() + LEAVING
        while True:
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    break
            time.sleep(0.02)
        what = "another farm goes on with it right now; wait until that has ended, or give this one its own"
        raise self._error(what)

    def _scan(self) -> None:
        """Finds the entries. What was written in part is cut off; what was altered is not believed."""
        size = os.fstat(self._file.fileno()).st_size
        while self._end + _ENTRY.size <= size:
            head = os.pread(self._file.fileno(), _ENTRY.size, self._end)
            length, name, check = _ENTRY.unpack(head)
            if not any(head):
                # A host that went down has made the file longer, and not filled it.
                break
            if zlib.crc32(head[: _NAMED.size]) != check or length < _LEAST:
                raise self._altered(self._end)
            start = self._end + _ENTRY.size
            if start + length > size:
                break
            self._places.setdefault(name, (start, length))
            self._end = start + length
        os.ftruncate(self._file.fileno(), self._end)

    def _altered(self, at: int) -> JournalError:
        return self._error(
            f"the entry at byte {at} is not what was written there: somebody altered it, or the disk is failing; put "
            "the file back from a backup, or remove it and compute all again"
        )

    # --- names

    def of_stage(self, stages: tuple[Stage[object, object], ...]) -> bytes | None:
        """What stages compute by; nothing if that cannot be told."""
        try:
            return self._fingerprints.of([stage.function for stage in stages])
        except Exception as error:
            name = " + ".join(stage.name for stage in stages)
            self._say(
                f"stage {name!r} is computed again in each run, since nobody can tell whether it is the same", error
            )
            return None

    def name(self, task: Task) -> bytes | None:
        """What the entry of a task is called; nothing if it has none."""
        if task.stage.print is None:
            return None
        try:
            given = self._fingerprints.of_token(task.token)
        except Exception as error:
            what = f"items of stage {task.stage.name!r} are computed again in each run, since nobody can tell whether"
            self._say(f"{what} they are the same", error)
            return None
        labels = json.dumps(sorted(task.token.labels)).encode()
        like = self._keys.name(b"task" + task.stage.print + given + bytes([task.mode]) + labels)
        self._counts[like] += 1
        return self._keys.name(b"time" + like + self._counts[like].to_bytes(8, "big"))

    def _say(self, what: str, error: Exception) -> None:
        if what not in self._said:
            self._said.add(what)
            _log.warning("%s: %s: %s", what, type(error).__name__, error)

    # --- entries

    def __contains__(self, name: bytes | None) -> bool:
        return name in self._places

    def recall(self, name: bytes, labels: frozenset[str]) -> Token:
        """What a task resulted in.

        Raises `JournalError` if it was altered.
        """
        start, length = self._places[name]
        sealed = bytearray()
        try:
            # The system reads no more than 2 GiB at once.
            while len(sealed) < length and (more := os.pread(self._file.fileno(), length - len(sealed), start)):
                sealed += more
                start += len(more)
        except OSError as error:
            raise self._error(f"it cannot be read: {error.strerror}") from error
        found = self._keys.unseal(name, sealed)
        if found is None:
            raise self._altered(self._places[name][0] - _ENTRY.size)
        count, parts = found
        return Token(parts, count, labels)

    def record(self, name: bytes, token: Token) -> None:
        """Keeps what a task resulted in.

        Raises `JournalError` if that cannot be written; then nothing was.
        """
        sealed = self._keys.seal(name, token.count, token.parts)
        named = _NAMED.pack(len(sealed), name)
        entry = b"".join((named, zlib.crc32(named).to_bytes(4, "big"), sealed))
        try:
            left = memoryview(entry)
            while left:
                left = left[os.pwrite(self._file.fileno(), left, self._end + len(entry) - len(left)) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)
            raise self._error(
                f"a result cannot be written: {error.strerror}; what it has stays good, so make room and run the "
                "program again"
            ) from error
        self._places[name] = (self._end + _ENTRY.size, len(sealed))
        self._end += len(entry)

    def sync(self) -> None:
        """What was kept until a second ago is there even if this host goes down.

        Raises `JournalError` if that cannot be.
        """
        end, now = self._end, time.monotonic()
        if self._synced == end or now - self._synced_at < SYNC:
            return
        try:
            os.fdatasync(self._file.fileno())
        except ValueError:
            # It was closed meanwhile.
            return
        except OSError as error:
            raise self._error(f"results cannot be written: {error.strerror}; run the program again") from error
        self._synced, self._synced_at = end, now

    def close(self) -> None:
        """Keeps all for good, and lets others go on with it."""
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            _log.warning(
                "%s", self._error(f"the last results may not be there if this host goes down: {error.strerror}")
            )
        # A process that is just being started has a copy of the file, until it is one of its own.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)
