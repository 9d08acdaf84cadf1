"""Sealed files as Python's file objects, read under the identity of whoever runs Python."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gambeson._native import NativeFile

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True)
class Region:
    """Bytes of a file that are under one label."""

    label: str | None
    """The key label, or None for bytes that are in clear by decision."""
    refused: str | None
    """Why this identity can't read them, or None if it can."""


class SealedFile(io.RawIOBase):
    """A sealed file that is open for reading. What is read was authenticated; everything else is an OSError.

    Bytes under a label that the key store does not have are a PermissionError that names the label. Others of the same
    file can be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, keys: str | os.PathLike[str] | None = None, passphrase: str | None = None
    ) -> None:
        """Opens `path`; `keys` is a key store's folder, and `passphrase` opens it if it is locked.

        Raises ValueError if the file is not sealed, PermissionError if no label of it is known here, and OSError if it
        was altered.
        """
        self._native = NativeFile(Path(path), Path(keys) if keys is not None else None, passphrase)
        self._position = 0
        self.name = os.fspath(path)

    @property
    def size(self) -> int:
        """Bytes of the file, as the program sees it."""
        return self._native.size

    @property
    def block_size(self) -> int:
        """Bytes that are sealed, and read, as one."""
        return self._native.block_size

    @property
    def not_anchored(self) -> str | None:
        """Why an old version of the whole file, put back, would not have been noticed; None if it would."""
        return self._native.not_anchored

    @property
    def regions(self) -> list[Region]:
        """The file's regions, in the order of their numbers; the first is what no other has."""
        return [Region(label, refused) for label, refused in self._native.regions()]

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves there; the new position."""
        self._check_open()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if start is None or start + offset < 0:
            raise ValueError(f"seek to {offset} from {whence}: no position of a file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        """Fills the buffer from the position on, as far as the file goes; how many bytes that were."""
        self._check_open()
        room = memoryview(buffer).cast("B")
        found = self._native.read(self._position, len(room))
        room[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed")


def open(
    path: str | os.PathLike[str], *, keys: str | os.PathLike[str] | None = None, passphrase: str | None = None
) -> io.BufferedReader:
    """A sealed file as Python's own `open(path, "rb")` would give a plain one; `.raw` is the SealedFile.

    h5py takes it: `h5py.File(gambeson.open("results.h5"))`. Without `keys` the store that `gambeson key` uses is taken.
    """
    file = SealedFile(path, keys=keys, passphrase=passphrase)
    return io.BufferedReader(file, file.block_size)
