"""Streams: items that go in, of unbounded number, and results that come out; and where items may come from."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from gambeson.farm._annotation import Labelled
from gambeson.farm._token import NO_LABELS, Token

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Results:
    """The results of a run: a frame whose tokens come back in any order, and are taken in one."""

    def __init__(self, ordered: bool, count: Callable[[int], None]) -> None:
        self.ordered = ordered
        self._count = count
        self._came: queue.SimpleQueue[tuple[int, Token]] = queue.SimpleQueue()
        self.fed = 0
        """Tokens that went in."""
        self.taken = 0
        """Tokens whose results were taken out."""
        self.bytes = 0
        """Of tokens that went in and did not come out."""
        self._first: tuple[int, Token] | None = None
        """What came first, if somebody has waited for it."""
        self._held: dict[int, Token] = {}
        self._sizes: dict[int, int] = {}

    @property
    def run(self) -> Results:
        """A run is in none."""
        return self

    def deliver(self, token: Token, at: int) -> None:
        """A token is through the program."""
        self._count(token.count)
        self._came.put((at, token))

    def enter(self, token: Token) -> int:
        """A token goes in; its place."""
        at = self.fed
        self.fed += 1
        self._sizes[at] = token.size
        self.bytes += token.size
        return at

    def under_way(self) -> int:
        """Tokens that went in and did not come out."""
        return self.fed - self.taken

    def is_there(self, patience: float) -> bool:
        """Whether something has come; waits for it at most so many seconds."""
        if self._first is None and patience:
            with contextlib.suppress(queue.Empty):
                self._first = self._came.get(True, patience)
        return self._first is not None or not self._came.empty()

    def take(self) -> Iterator[tuple[int, Token]]:
        """Takes what is due: in order of the items, or as it came."""
        first, self._first = self._first, None
        try:
            at, token = self._came.get_nowait() if first is None else first
        except queue.Empty:
            return
        while True:
            self.bytes -= self._sizes.pop(at)
            if not self.ordered:
                self.taken += 1
                yield at, token
            else:
                self._held[at] = token
                self.bytes += token.size
                while self.taken in self._held:
                    due = self._held.pop(self.taken)
                    self.bytes -= due.size
                    self.taken += 1
                    yield self.taken - 1, due
            try:
                at, token = self._came.get_nowait()
            except queue.Empty:
                return


def outcomes(token: Token) -> list[Any]:
    """The items of a token, failures in their places."""
    items, failures = token.outcomes()
    for at, failure in failures.items():
        items[at] = failure
    return items


class Tokens:
    """Items of a stream, some at a time; a token has items of the same labels alone."""

    def __init__(self, inputs: Iterator[Any]) -> None:
        self._inputs = inputs
        self.ended = False

    def next(self, count: int) -> list[Token]:
        """At most so many further items, as tokens of items with the same labels."""
        found: list[tuple[list[Any], frozenset[str]]] = []
        for _ in range(count):
            try:
                item = next(self._inputs)
            except StopIteration:
                self.ended = True
                break
            labels = NO_LABELS
            if type(item) is Labelled:
                item, labels = item.value, item.labels
            if found and found[-1][1] == labels:
                found[-1][0].append(item)
            else:
                found.append(([item], labels))
        return [Token.of(items, labels) for items, labels in found]

    def close(self) -> None:
        """No more are wanted."""


class Getter(Protocol[T_co]):
    """What items are got from: `queue.Queue`, `multiprocessing.Queue`, a client of a message broker."""

    def get(self) -> T_co:
        """The next one, waited for."""


def lines(path: str | PathLike[str], *, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, without their ends."""
    file: IO[str]
    with Path(path).open(encoding=encoding) as file:
        for line in file:
            yield line.rstrip("\r\n")


def files(folder: str | PathLike[str], pattern: str = "*") -> Iterator[Path]:
    """The files below a folder whose names match a pattern (`**/*.png` for those of folders in it, too), in order."""
    for path in sorted(Path(folder).glob(pattern)):
        if path.is_file():
            yield path


def messages(source: Getter[T], *, end: object = None) -> Iterator[T]:
    """What a queue brings, until it brings `end`."""
    while (message := source.get()) is not end:
        yield message


def chained(inputs: Iterable[T]) -> Iterator[T]:
    """An iterator, and a sentence where there is none."""
    try:
        return iter(inputs)
    except TypeError:
        what = f"a {type(inputs).__qualname__} has no items to compute; give a list, a generator, or another iterable"
        raise TypeError(what) from None
