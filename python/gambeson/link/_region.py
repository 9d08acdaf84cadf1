"""Memory regions of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gambeson import _native
from gambeson.link._startpoint import Caveat

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Region:
    """Memory of an endpoint that startpoints reach, as far as their windows go. It is there as long as somebody
    holds it; clones are the same memory.
    """

    def __init__(self, native: _native.NativeRegion) -> None:
        """`Endpoint.region` makes one."""
        self._native = native

    @property
    def number(self) -> int:
        """Its number at its endpoint, which no other region has or will have."""
        return self._native.number()

    def __len__(self) -> int:
        """Its length in bytes; it never changes."""
        return len(self._native)

    def window(self, offset: int = 0, length: int | None = None, *, read: bool = False, write: bool = False) -> Caveat:
        """A window of `length` bytes from `offset` on, for a startpoint's `Caveat.memory`; `rights` are `Window::READ`,
        `Window::WRITE` or both.

        Without a length, to the end.
        """
        length = len(self) - offset if length is None else length
        return Caveat.memory(self.number, offset, length, read=read, write=write)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Copies from `offset` on into `into`. No put is seen in part.

        Without a length, to the end. Raises `StartpointRefused`.
        """
        return self._native.read(offset, max(len(self) - offset, 0) if length is None else length)

    def write(self, offset: int, payload: Buffer) -> None:
        """Copies `from` to `offset`.

        Raises `StartpointRefused`.
        """
        self._native.write(offset, payload)
