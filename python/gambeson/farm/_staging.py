"""Stages and their numbers: what code there is, and when nobody needs it any more."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from gambeson.farm import _protocol
from gambeson.farm._annotation import Marks
from gambeson.farm._errors import StageError
from gambeson.farm._skeleton import Stage
from gambeson.farm._task import Staged


class Staging:
    """The stages of a program, and the functions that are called."""

    def __init__(self, stage: Callable[[int, tuple[Stage[Any, Any], ...]], Staged]) -> None:
        self.program: dict[tuple[int, ...], Staged] = {}
        """The stages of the program."""
        self.called: weakref.WeakValueDictionary[tuple[bytes, Marks], Staged] = weakref.WeakValueDictionary()
        """Those of an executor's calls, as long as somebody has them: by code."""
        self.taken: set[int] = set()
        """Numbers of stages that workers may have."""
        self._stage = stage
        self._numbers = itertools.cycle(range(1, _protocol.STAGE_MASK + 1))
        self._unused: deque[tuple[int, Marks]] = deque()
        """Stages that no task is of any more, and that workers have not forgotten."""

    def find(self, stages: tuple[Stage[Any, Any], ...]) -> Staged:
        """The staged code of these functions of the program; staged now, if it was not before."""
        key = tuple(id(stage) for stage in stages)
        staged = self.program.get(key)
        if staged is None:
            staged = self.program[key] = self._stage(self._number(), stages)
        return staged

    def known(self, stages: tuple[Stage[Any, Any], ...]) -> Staged | None:
        """The staged code of these functions, if they were staged before."""
        return self.program.get(tuple(id(stage) for stage in stages))

    def call(self, stage: Stage[Any, Any]) -> Staged:
        """The staged code of a function that is called: the same for those with the same code. When nobody has it any
        more, and no task is of it, it is forgotten, by workers, too.
        """
        staged = self._stage(0, (stage,))
        key = (staged.code.hash, staged.marks)
        known = self.called.get(key)
        if known is not None:
            return known
        staged.number = self._number()
        weakref.finalize(staged, self._unused.append, (staged.number, staged.marks)).atexit = False
        self.called[key] = staged
        return staged

    def _number(self) -> int:
        """One that no worker knows, and none knew lately."""
        if len(self.taken) == _protocol.STAGE_MASK:
            what = f"the code of {len(self.taken)} functions is wanted at the same time, which is the most"
            raise StageError(what)
        number = next(number for number in self._numbers if number not in self.taken)
        self.taken.add(number)
        return number

    def forgotten(self) -> Iterator[tuple[int, Marks]]:
        """Stages that are not used any more, each once."""
        while self._unused:
            number, marks = self._unused.popleft()
            self.taken.remove(number)
            yield number, marks

    def all(self) -> list[tuple[object, Staged]]:
        """All of them."""
        return [*self.program.items(), *self.called.items()]
