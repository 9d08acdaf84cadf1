"""Tokens: what goes between instructions. Lists of items, pickled with their buffers beside (PEP 574), so that arrays
go out from where they are and are seen where they came.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

from gambeson.farm._errors import Failure, StageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Parts = list["Buffer"]

LONG = 64 << 10
"""Bytes of an item that are worth a buffer of their own."""

NO_LABELS: frozenset[str] = frozenset()


class Token:
    """Some items on their way."""

    __slots__ = ("count", "failures", "labels", "parts", "size")

    def __init__(
        self,
        parts: Sequence[Buffer],
        count: int,
        labels: frozenset[str] = NO_LABELS,
        failures: dict[int, Failure] | None = None,
    ) -> None:
        self.parts = parts
        self.count = count
        self.labels = labels
        self.failures = failures
        """Items that failed on the way here; in the list something stands in for them."""
        self.size = sum([memoryview(part).nbytes for part in parts])

    @classmethod
    def of(cls, items: list[Any], labels: frozenset[str] = NO_LABELS) -> Token:
        """A token of these items."""
        return cls(dump(items), len(items), labels)

    def items(self) -> list[Any]:
        """Its items."""
        items: list[Any] = load(self.parts)
        return items

    def outcomes(self) -> tuple[list[Any], dict[int, Failure]]:
        """Its items, and those of them that failed: all, if what a worker sent cannot be loaded here."""
        try:
            return self.items(), self.failures or {}
        except Exception as error:
            failure = Failure(not_loaded(error))
            return [None] * self.count, dict.fromkeys(range(self.count), failure) | (self.failures or {})


def not_loaded(error: Exception) -> StageError:
    """What is said of a token that cannot be loaded here."""
    what = f"what a worker returned cannot be loaded by the program that gets it: {type(error).__name__}: {error}"
    if isinstance(error, ImportError):
        what += "; install that where the program runs, too"
    failure = StageError(what)
    failure.__cause__ = error
    return failure


class _Beside:
    """An item of bytes that is pickled as a buffer; it is loaded as bytes."""

    def __init__(self, item: bytes) -> None:
        self._item = item

    def __reduce__(self) -> tuple[type[bytes], tuple[pickle.PickleBuffer]]:
        return bytes, (pickle.PickleBuffer(self._item),)


def _beside(items: list[Any]) -> list[Any]:
    """These items, long bytes as buffers: pickle would copy them into the stream, and out of it again."""
    # An item that is there twice stays one.
    beside = {id(item): _Beside(item) for item in items if type(item) is bytes and len(item) >= LONG}
    return [beside.get(id(item), item) for item in items]


def dump(value: object) -> Parts:
    """Pickles something: a stream, and the buffers that stay where they are."""
    # The first item tells what the others are, so that those who have none pay nothing.
    if type(value) is list and value and type(value[0]) is bytes:
        value = _beside(value)
    buffers: list[pickle.PickleBuffer] = []
    try:
        stream = pickle.dumps(value, 5, buffer_callback=buffers.append)
        # What the program itself defines, no other process can import.
        if b"__main__" not in stream:
            return [stream, *[_raw(buffer) for buffer in buffers]]
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    buffers.clear()
    stream = cloudpickle.dumps(value, 5, buffer_callback=buffers.append)
    return [stream, *[_raw(buffer) for buffer in buffers]]


def _raw(buffer: pickle.PickleBuffer) -> memoryview:
    try:
        return buffer.raw()
    except BufferError:
        # Not in one piece: a copy is.
        return memoryview(memoryview(buffer).tobytes())


def load(parts: Sequence[Buffer]) -> Any:
    """What was dumped. Unpickling runs what the sender wants: from who is not trusted with that comes the plain form
    (`_plain`)."""
    return pickle.loads(parts[0], buffers=parts[1:])
