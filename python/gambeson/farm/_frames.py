"""Frames: where a token comes back to that is through with a graph. A copy of the graph is under way for each item of
the stream, and a frame for each instruction in it that has a graph inside or takes several steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from gambeson.farm._errors import Failure, FarmError
from gambeson.farm._graph import Fold, Instruction, Loop, Spread
from gambeson.farm._protocol import Mode
from gambeson.farm._token import Token

if TYPE_CHECKING:
    from gambeson.farm._pool import Pool


class Frame(Protocol):
    """Where tokens come back to."""

    @property
    def run(self) -> Frame:
        """The outermost frame that this one is in: what wants the results."""

    def deliver(self, token: Token, at: int) -> None:
        """A token is through; `at` is its place among those of the frame."""


class Gathering:
    """Waits for tokens in their places, and goes on with the items of all of them."""

    def __init__(self, pool: Pool, after: Instruction | None, parent: Frame, place: int, count: int) -> None:
        self.pool = pool
        self.after = after
        self.parent = parent
        self.run = parent.run
        self.place = place
        self._tokens: list[Token | None] = [None] * count
        self._missing = count

    def deliver(self, token: Token, at: int) -> None:
        """A token is through."""
        self._tokens[at] = token
        self._missing -= 1
        if self._missing == 0:
            self.gathered([token for token in self._tokens if token is not None])

    def gathered(self, tokens: list[Token]) -> None:
        """All are there: they go on as one."""
        items: list[Any] = []
        failures: dict[int, Failure] = {}
        for token in tokens:
            found, failed = token.outcomes()
            failures.update((len(items) + at, failure) for at, failure in failed.items())
            items += found
        self.go_on(items, failures, labels_of(tokens))

    def go_on(self, items: list[Any], failures: dict[int, Failure], labels: frozenset[str]) -> None:
        """What was one token before it was taken apart is one again."""
        token = Token.of(items, labels)
        token.failures = failures or None
        self.pool.fire(self.after, token, self.parent, self.place)


class Spreading(Gathering):
    """The elements of an item are under way; what comes of them is one item, their list."""

    def go_on(self, items: list[Any], failures: dict[int, Failure], labels: frozenset[str]) -> None:
        finish(self, [items], next(iter(failures.values()), None), labels)


def finish(frame: Gathering, items: list[Any], failure: Failure | None, labels: frozenset[str]) -> None:
    """A step of several is through: its one item goes on."""
    token = Token.of([None] if failure else items, labels)
    if failure is not None:
        token.failures = {0: failure}
    frame.pool.fire(frame.after, token, frame.parent, frame.place)


def labels_of(tokens: list[Token]) -> frozenset[str]:
    """The labels of all: what is made of several has those of each."""
    return frozenset[str]().union(*(token.labels for token in tokens))


def spread(pool: Pool, instruction: Spread, token: Token, parent: Frame, place: int) -> None:
    """Sends the elements of an item through the graph inside."""
    elements = _elements(token)
    if isinstance(elements, Failure):
        return _failed(pool, instruction, elements, token, parent, place)
    chunks = _chunks(elements, instruction.chunk or pool.chunk(instruction.each, len(elements)))
    if not chunks:
        return pool.fire(instruction.after, Token.of([[]], token.labels), parent, place)
    frame = Spreading(pool, instruction.after, parent, place, len(chunks))
    for at, chunk in enumerate(chunks):
        pool.fire(instruction.each, Token.of(chunk, token.labels), frame, at)
    return None


def _elements(token: Token) -> list[Any] | Failure:
    """The elements of the one item of a token."""
    items, failures = token.outcomes()
    if failures:
        return failures[0]
    item = items[0]
    try:
        return list(item)
    except TypeError:
        what = f"a {type(item).__qualname__} came where a sequence is wanted, whose elements would be computed apart"
        return Failure(FarmError(what))


def _failed(pool: Pool, instruction: Instruction, failure: Failure, token: Token, parent: Frame, place: int) -> None:
    failed = Token.of([None], token.labels)
    failed.failures = {0: failure}
    pool.fire(instruction.after, failed, parent, place)


def _chunks(elements: list[Any], size: int) -> list[list[Any]]:
    return [elements[at : at + size] for at in range(0, len(elements), size)]


def fold(pool: Pool, instruction: Fold, token: Token, parent: Frame, place: int) -> None:
    """Reduces or scans an item."""
    elements = _elements(token)
    if isinstance(elements, Failure):
        return _failed(pool, instruction, elements, token, parent, place)
    if not elements and not instruction.scan:
        failure = Failure(FarmError("an empty sequence came to a reduce, which has no value for it"))
        return _failed(pool, instruction, failure, token, parent, place)
    if not elements:
        return pool.fire(instruction.after, Token.of([[]], token.labels), parent, place)
    size = max(2, instruction.chunk or -(-len(elements) // (4 * pool.breadth())))
    chunks = _chunks(elements, size)
    step: type[_Folding] = _Scanning if instruction.scan else _Reducing
    frame = step(pool, instruction, parent, place, chunks, size)
    frame.begin(Mode.SCAN if instruction.scan else Mode.FOLD, chunks, token.labels)
    return None


class _Folding(Gathering, ABC):
    """One step of a reduction or a prefix: chunks are under way."""

    def __init__(
        self, pool: Pool, instruction: Fold, parent: Frame, place: int, chunks: list[list[Any]], size: int
    ) -> None:
        super().__init__(pool, instruction.after, parent, place, len(chunks))
        self.instruction = instruction
        self.size = size

    def begin(self, mode: Mode, chunks: list[list[Any]], labels: frozenset[str]) -> None:
        """Sends the chunks."""
        combine = self.pool.staging.find((self.instruction.combine,))
        for at, chunk in enumerate(chunks):
            self.pool.submit(self.instruction, combine, mode, Token.of(chunk, labels), self, at)

    def go_on(self, items: list[Any], failures: dict[int, Failure], labels: frozenset[str]) -> None:
        if failures:
            finish(self, [], next(iter(failures.values())), labels)
        else:
            self.proceed(items, labels)

    @abstractmethod
    def proceed(self, items: list[Any], labels: frozenset[str]) -> None:
        """All chunks are there."""


class _Reducing(_Folding):
    """A level of the tree: a value for each chunk."""

    def proceed(self, items: list[Any], labels: frozenset[str]) -> None:
        if len(items) == 1:
            return finish(self, items, None, labels)
        chunks = _chunks(items, max(2, min(self.size, 8)))
        frame = _Reducing(self.pool, self.instruction, self.parent, self.place, chunks, self.size)
        frame.begin(Mode.FOLD, chunks, labels)
        return None


class _Scanning(_Folding):
    """The prefixes of each chunk: then what stands before each chunk, by the last of each."""

    def proceed(self, items: list[Any], labels: frozenset[str]) -> None:
        if len(items) == 1:
            return finish(self, items, None, labels)
        lasts = [[prefixes[-1] for prefixes in items[:-1]]]
        frame = _Offsets(self.pool, self.instruction, self.parent, self.place, lasts, self.size)
        frame.prefixes = items
        frame.begin(Mode.SCAN, lasts, labels)
        return None


class _Offsets(_Folding):
    """What stands before each chunk is under way."""

    prefixes: list[list[Any]]

    def proceed(self, items: list[Any], labels: frozenset[str]) -> None:
        chunks = [[pair] for pair in zip(items[0], self.prefixes[1:], strict=True)]
        frame = _Shifting(self.pool, self.instruction, self.parent, self.place, chunks, self.size)
        frame.first = self.prefixes[0]
        frame.begin(Mode.SHIFT, chunks, labels)


class _Shifting(_Folding):
    """Each chunk's prefixes go on from what stands before it."""

    first: list[Any]

    def proceed(self, items: list[Any], labels: frozenset[str]) -> None:
        whole = list(self.first)
        for shifted in items:
            whole += shifted
        finish(self, [whole], None, labels)


class Looping:
    """An item goes round."""

    def __init__(self, pool: Pool, instruction: Loop, parent: Frame, place: int) -> None:
        self.pool = pool
        self.instruction = instruction
        self.parent = parent
        self.run = parent.run
        self.place = place
        self.rounds = 0

    def deliver(self, token: Token, at: int) -> None:
        """A round is over."""
        self.rounds += 1
        loop = self.instruction
        if token.failures or self.rounds == loop.times:
            self.leave(token)
        elif loop.again is None:
            self.pool.fire(loop.body, token, self, at)
        else:
            self.pool.submit(loop, self.pool.staging.find((loop.again,)), Mode.TEST, token, _Asking(self, token), at)

    def leave(self, token: Token) -> None:
        """The last round is over."""
        self.pool.fire(self.instruction.after, token, self.parent, self.place)


class _Asking:
    """Whether an item goes round again is asked."""

    def __init__(self, loop: Looping, token: Token) -> None:
        self.loop = loop
        self.run = loop.run
        self.token = token

    def deliver(self, token: Token, at: int) -> None:
        """The answer: a token that failed, or has an item, says no or yes by that."""
        if token.failures:
            self.loop.leave(token)
        elif token.count:
            self.loop.pool.fire(self.loop.instruction.body, self.token, self.loop, at)
        else:
            self.loop.leave(self.token)
