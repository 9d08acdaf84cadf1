"""Groups of endpoints that are called together."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gambeson import _native
from gambeson.link._errors import Error

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Operation(enum.Enum):
    """How two answers become one. It is applied in the members' order, so it need not be commutative; and in a
    grouping that depends on their number alone, so that sums of floating-point numbers are the same each time.
    """

    CONCATENATE = "concatenate"
    """One answer behind the other."""
    SUM_I64 = "sum-i64"
    """The sums of arrays of `i64`, little-endian, element by element; they wrap around."""
    MIN_I64 = "min-i64"
    """The least of each element of arrays of `i64`, little-endian."""
    MAX_I64 = "max-i64"
    """The greatest of each element of arrays of `i64`, little-endian."""
    SUM_F64 = "sum-f64"
    """The sums of arrays of `f64`, little-endian, element by element."""
    MIN_F64 = "min-f64"
    """The least of each element of arrays of `f64`, little-endian; NaN if one is."""
    MAX_F64 = "max-f64"
    """The greatest of each element of arrays of `f64`, little-endian; NaN if one is."""


@dataclass(frozen=True)
class OwnOperation:
    """An own one. Endpoints that pass messages on are given it with `Handlers::forwards`, under the same name of 1
    to 64 bytes, which must not begin with `+`; where it is missing, answers are passed on as they are.
    """

    name: str
    """The same at all ends."""
    combine: Callable[[bytes, bytes], Buffer]
    """Makes one answer of two, of which the first is the earlier member's; in whatever thread. What it raises is why
    there is none.
    """


class Group:
    """A set of endpoints that are called together, with their order."""

    def __init__(self, native: _native.NativeGroup, domain: object) -> None:
        """`Domain.group` makes one, which keeps the domain."""
        self._native = native
        self._domain = domain

    def __len__(self) -> int:
        """How many members it has."""
        return len(self._native)

    def send(self, handler: int, payload: Buffer = b"", timeout: float | None = None) -> list[Error | None]:
        """Sends a request that nobody answers to all members; for each, whether it went, within `patience`.

        `timeout` is in seconds. For each member `None`, or why it did not go.
        """
        return self._native.send(handler, payload, timeout)

    def call(self, handler: int, payload: Buffer = b"", timeout: float | None = None) -> list[bytes | Error]:
        """Calls all members; their answers, in their order.

        `timeout` is in seconds. Of a member that gave no answer, the error that says why.
        """
        return self._native.call(handler, payload, timeout)

    def reduce(
        self, handler: int, payload: Buffer, operation: Operation | OwnOperation, timeout: float | None = None
    ) -> bytes:
        """Calls all members and combines their answers by an operation, always in the same order and grouping, whether
        it is called flat or not. Empty of an empty group.

        `timeout` is in seconds. Raises the error of the first member that gave no answer, and `HandlerRefused` when two
        answers cannot be combined.
        """
        how = operation.value if isinstance(operation, Operation) else (operation.name, operation.combine)
        return self._native.reduce(handler, payload, how, timeout)
