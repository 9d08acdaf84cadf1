"""How many items go to a worker together, and how many of a stream are under way: grain, and bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gambeson.farm._control import FEW, WORK
from gambeson.farm._graph import Apply, Instruction

if TYPE_CHECKING:
    from gambeson.farm._staging import Staging

CHUNK_TIME = 1e-3
"""Seconds of work that items are put together for."""
CHUNK_BYTES = 1 << 20
"""Bytes of items that are put together, at the most."""
CHUNK_MAX = 1024
AHEAD = 8
"""Tokens of a stream that are under way for each that a worker is given ahead: they wait, or wait for others."""
COROUTINES = 16
"""Items that a worker awaits at the same time."""
RECENT = 16
"""Tokens after which what came out before them counts half."""


@dataclass
class Passage:
    """What an item of a stream takes on its way through all of the program, by those that came out lately."""

    items: float = 0.0
    seconds: float = 0.0
    bytes: float = 0.0
    """Of results, also of those on the way."""
    _tokens: int = 0

    def took(self, seconds: float, size: int) -> None:
        """A task, which is part of it, took so long and made so many bytes."""
        self.seconds += seconds
        self.bytes += size

    def through(self, items: int) -> None:
        """Some items came out. What was before counts less and less."""
        self.items += items
        self._tokens += 1
        if self._tokens % RECENT == 0:
            self.items, self.seconds, self.bytes = self.items / 2, self.seconds / 2, self.bytes / 2


@dataclass
class Bounds:
    """Says so by what items took so far."""

    staging: Staging
    chunk: int | None
    """What the program says of how many go together."""
    journaled: bool
    retried: bool
    timed: bool
    """Whether each task's time is limited."""
    passage: Passage = field(default_factory=Passage)

    def together(self, instruction: Instruction, available: int, parallelism: int) -> int:
        """How many items go to one of so many workers together that enters at this instruction."""
        if self.chunk is not None:
            return self.chunk
        if not isinstance(instruction, Apply) or self.retried:
            return 1
        if self.journaled:
            # The same in each run, or no task would be found again.
            return COROUTINES if instruction.functions[0].is_coroutine else 1
        staged = self.staging.known(instruction.functions)
        fair = -(-available // (2 * parallelism))
        if instruction.functions[0].is_coroutine:
            return max(1, min(COROUTINES, fair))
        if staged is None or staged.items == 0 or self.timed:
            return 1
        # Step by step: the first items may be no measure for the rest.
        worth = min(int(CHUNK_TIME / max(staged.seconds, 1e-7)), int(CHUNK_BYTES / max(staged.size, 1.0)))
        return max(1, min(CHUNK_MAX, 4 * staged.items, worth, fair))

    def room(self, first: Instruction, memory: int, parallelism: int) -> tuple[int, int, int]:
        """How many tasks that enter at this instruction are to wait, so that no worker waits for one; how many of a
        stream there may be in all; and how many items each has. What is under way of a stream is work for some
        milliseconds, and takes `memory` bytes at the most, as far as is known; until something came out, nothing is.
        """
        # Of what does not begin with a function each item goes its own ways.
        count = self.together(first, 1 << 30, parallelism) if isinstance(first, Apply) else 1
        passage = self.passage
        work, fit = 1.0, 2 * parallelism * count
        if passage.items:
            work = WORK / max(passage.seconds / passage.items, 1e-7)
            fit = int(memory / max(passage.bytes / passage.items, 1.0))
        if self.chunk is None and not self.journaled:
            count = max(1, min(count, int(work), fit // (AHEAD * parallelism)))
        ahead = max(1, min(FEW, CHUNK_MAX // count, int(work / count))) * parallelism
        return 2 * ahead, max(1, min(AHEAD * ahead, fit // count)), count
