"""The macro-data-flow graph that a skeleton is compiled to (secure-muskel paper, section 2).

For each item of the stream a token enters at the first instruction. An instruction is fireable as soon as its tokens
are there; what it makes goes to the instruction behind it. Instructions with a graph of their own inside (`map`,
`iterate`) send tokens through that, each with a frame that knows where it comes back to.

    pipeline(read, map(filter), reduce(join))  ->  read -> map[ filter ] -> reduce join
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gambeson.farm._annotation import Marks
from gambeson.farm._picture import Picture, draw
from gambeson.farm._skeleton import Farm, Iterate, Map, Pipeline, Reduce, Scan, Skeleton, Stage


@dataclass(eq=False)
class Instruction:
    """What is done with a token, and where what comes of it goes: to `after`, or back to the token's frame."""

    number: int
    after: Instruction | None

    def name(self) -> str:
        """For people."""
        return type(self).__name__.lower()

    def stages(self) -> tuple[Stage[Any, Any], ...]:
        """The functions that workers run for it."""
        return ()

    def inner(self) -> Instruction | None:
        """The first instruction of the graph inside it."""
        return None


@dataclass(eq=False)
class Apply(Instruction):
    """A worker applies functions, one after the other, to the items of a token."""

    functions: tuple[Stage[Any, Any], ...]

    @property
    def marks(self) -> Marks:
        """What its functions were annotated with, which is the same for all."""
        return self.functions[0].marks

    def name(self) -> str:
        return " + ".join(stage.name for stage in self.functions)

    def stages(self) -> tuple[Stage[Any, Any], ...]:
        return self.functions


@dataclass(eq=False)
class Spread(Instruction):
    """The elements of a sequence go through the graph inside, and come together as a list."""

    each: Instruction
    chunk: int | None

    def name(self) -> str:
        return "map"

    def inner(self) -> Instruction:
        return self.each


@dataclass(eq=False)
class Fold(Instruction):
    """Workers make one value of a sequence, by parts and in a tree; or, to `scan` it, one for each element."""

    combine: Stage[Any, Any]
    chunk: int | None
    scan: bool

    def name(self) -> str:
        return f"{'scan' if self.scan else 'reduce'} {self.combine.name}"

    def stages(self) -> tuple[Stage[Any, Any], ...]:
        return (self.combine,)


@dataclass(eq=False)
class Loop(Instruction):
    """A token goes through the graph inside again and again."""

    body: Instruction
    again: Stage[Any, bool] | None
    times: int | None

    def name(self) -> str:
        until = f"while {self.again.name}" if self.again is not None else ""
        bound = f"{self.times} times" if self.times is not None else ""
        return "iterate " + ", ".join(filter(None, (until, bound)))

    def stages(self) -> tuple[Stage[Any, Any], ...]:
        return () if self.again is None else (self.again,)

    def inner(self) -> Instruction:
        return self.body


@dataclass
class Graph:
    """A compiled program."""

    first: Instruction
    instructions: list[Instruction] = field(default_factory=list)

    def stages(self) -> list[Stage[Any, Any]]:
        """The functions of all instructions, each once."""
        found: dict[int, Stage[Any, Any]] = {}
        for instruction in self.instructions:
            for stage in instruction.stages():
                found.setdefault(id(stage), stage)
        return list(found.values())

    def show(self) -> str:
        """A picture of it, as an SVG document."""
        return draw(_picture(self.first))

    def _repr_svg_(self) -> str:
        return self.show()

    def __str__(self) -> str:
        return _text(self.first)


def compile_graph(program: Skeleton[Any, Any]) -> Graph:
    """Compiles a skeleton.

    Farms need no instruction: any worker takes any fireable one, so all of the graph is farmed. Functions that follow
    one another and are annotated alike are one instruction (the normal form of stream-parallel skeletons): what is
    between them goes over no link.
    """
    first = _compiled(program, None)
    instructions = list(_walk(first))
    for number, instruction in enumerate(instructions):
        instruction.number = number
    return Graph(first, instructions)


def _walk(first: Instruction | None) -> Iterator[Instruction]:
    """All instructions, in the order in which tokens come to them."""
    for instruction in _chain(first):
        yield instruction
        yield from _walk(instruction.inner())


def _compiled(program: Skeleton[Any, Any], after: Instruction | None) -> Instruction:
    match program:
        case Stage():
            if isinstance(after, Apply) and _fusible(program, after.functions[0]):
                after.functions = (program, *after.functions)
                return after
            return Apply(0, after, (program,))
        case Farm():
            return _compiled(program.worker, after)
        case Pipeline():
            for one in reversed(program.stages):
                after = _compiled(one, after)
            assert after is not None
            return after
        case Map():
            return Spread(0, after, _compiled(program.each, None), program.chunk)
        case Reduce():
            return Fold(0, after, program.combine, program.chunk, scan=False)
        case Scan():
            return Fold(0, after, program.combine, program.chunk, scan=True)
        case Iterate():
            return Loop(0, after, _compiled(program.body, None), program.again, program.times)
    what = f"{program!r} is no skeleton"
    raise TypeError(what)


def _fusible(one: Stage[Any, Any], other: Stage[Any, Any]) -> bool:
    return one.marks == other.marks and one.is_coroutine == other.is_coroutine


def _chain(first: Instruction | None) -> Iterator[Instruction]:
    while first is not None:
        yield first
        first = first.after


def _text(first: Instruction) -> str:
    def one(instruction: Instruction) -> str:
        inner = instruction.inner()
        return instruction.name() if inner is None else f"{instruction.name()}[ {_text(inner)} ]"

    return " -> ".join(one(instruction) for instruction in _chain(first))


def _picture(first: Instruction) -> list[Picture]:
    def one(instruction: Instruction) -> Picture:
        inner = instruction.inner()
        notes = []
        for stage in instruction.stages():
            marks = stage.marks
            if marks.code:
                notes.append("sensitive code")
            if marks.takes | marks.gives:
                notes.append("sensitive data: " + ", ".join(sorted(marks.takes | marks.gives)))
            if marks.declassifies:
                notes.append("declassifies " + ", ".join(sorted(marks.declassifies)))
        inside = [] if inner is None else _picture(inner)
        return Picture(instruction.name(), list(dict.fromkeys(notes)), inside)

    return [one(instruction) for instruction in _chain(first)]
