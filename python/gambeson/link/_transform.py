"""Transform modules of a program's own."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class End(enum.Enum):
    """Which end of a link we are."""

    STARTPOINT = "startpoint"
    """The one that opened it."""
    ENDPOINT = "endpoint"
    """The one it was opened to."""


class Mapping(ABC):
    """A module on one link, at one of its ends. Its functions run with the domain locked, as inline handlers do: they
    must not wait, and cannot use the domain.

    They run in whatever thread moves the domain's bytes, and must not wait for another thread that uses the domain.
    What they raise, `KeyboardInterrupt` too, ends the request.
    """

    @abstractmethod
    def apply(self, message: bytes) -> Buffer:
        """Transforms what goes out from this end. Each message comes here once and in the order of the link, however
        often a lost connection has its sealed bytes sent again.
        """

    @abstractmethod
    def restore(self, message: bytes, most: int) -> Buffer:
        """Undoes what the other end's `Mapping.apply` did, in the same order. The other end may have made the message
        with malice; `most` bytes are the most that may become of it.
        """


class Transform(ABC):
    """A module that transforms the messages of links: compression, an own encoding, a cipher or a checksum beside those
    that are there.

    While it works on a message its domain does nothing else, nor does the rest of the program's Python.
    """

    name: str
    """By what endpoints name it: printable ASCII without spaces and commas. All names of one stack have 64 characters,
    commas between them included.
    """
    remembers: bool = True
    """Whether what becomes of a message depends on the ones before. Then a message that fails is the last of its link
    in that direction: what came behind it would not be restored rightly.
    """

    @abstractmethod
    def open(self, end: End) -> Mapping:
        """A link begins, and this is that end of it. Links of one endpoint share nothing, nor do those of a startpoint
        and its copy. What it returns has the state of the link in both directions.

        What it raises is why the link does not come about.
        """


def module(own: Transform) -> tuple[str, bool, Callable[[bool], object]]:
    """The module as the native side calls it."""

    def open_end(is_startpoint: bool) -> object:
        mapping = own.open(End.STARTPOINT if is_startpoint else End.ENDPOINT)
        return mapping.apply, mapping.restore

    return own.name, own.remembers, open_end
