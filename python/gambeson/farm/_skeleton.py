"""Skeletons: how a program is parallel, as a tree that nests (secure-muskel paper, section 2).

Leaves are functions, coroutine functions among them. Nothing here runs anything: see `_graph` and `_manager`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from gambeson.farm._annotation import Marks, marks

A_contra = TypeVar("A_contra", contravariant=True)
B_co = TypeVar("B_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Skeleton(Generic[A_contra, B_co]):
    """What makes a `B` of an `A`."""

    def __or__(self: Skeleton[A, B], after: Stageable[B, C]) -> Skeleton[A, C]:
        """`first | second` is `pipeline(first, second)`."""
        return pipeline(self, after)

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        """The skeletons that it is made of."""
        return ()

    def described(self) -> str:
        """What it is, without its parts."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        inner = ", ".join(repr(part) for part in self.parts())
        return f"{self.described()}({inner})"


Stageable: TypeAlias = Skeleton[A, B] | Callable[[A], B]
"""A skeleton, or a function that is to be one. For type checkers a coroutine function becomes one by `stage`."""


class Stage(Skeleton[A, B]):
    """A function that runs on a worker, as a whole."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        if not callable(function):
            what = f"{function!r} is no stage: give a function, or a skeleton"
            raise TypeError(what)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            what = f"{_name(function)} is a generator function; a stage returns what it makes, as a list perhaps"
            raise TypeError(what)
        self.function = function
        self.name = name or _name(function)

    @property
    def marks(self) -> Marks:
        """What its function was annotated with."""
        return marks(self.function)

    @property
    def is_coroutine(self) -> bool:
        """Whether it is awaited."""
        return inspect.iscoroutinefunction(self.function)

    def described(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


class Farm(Skeleton[A, B]):
    """Items are independent of one another: as many at once as there are workers."""

    def __init__(self, worker: Skeleton[A, B]) -> None:
        self.worker = worker

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return (self.worker,)


class Pipeline(Skeleton[A, B]):
    """One stage after the other."""

    def __init__(self, stages: Sequence[Skeleton[Any, Any]]) -> None:
        self.stages = tuple(stages)

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return self.stages


class Map(Skeleton[Sequence[A], list[B]]):
    """Each item is a sequence, whose elements are computed at the same time."""

    def __init__(self, each: Skeleton[A, B], chunk: int | None) -> None:
        self.each = each
        self.chunk = chunk

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return (self.each,)


class Reduce(Skeleton[Sequence[A], A]):
    """Each item is a sequence, of which an associative function makes one value."""

    def __init__(self, combine: Stage[Any, A], chunk: int | None) -> None:
        self.combine = combine
        self.chunk = chunk

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return (self.combine,)


class Scan(Skeleton[Sequence[A], list[A]]):
    """Parallel prefix: each item is a sequence, and what comes is a list of what an associative function makes of the
    elements up to each."""

    def __init__(self, combine: Stage[Any, A], chunk: int | None) -> None:
        self.combine = combine
        self.chunk = chunk

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return (self.combine,)


class Iterate(Skeleton[A, A]):
    """The same again: so many times, or as long as a function says so."""

    def __init__(self, body: Skeleton[A, A], again: Stage[A, bool] | None, times: int | None) -> None:
        self.body = body
        self.again = again
        self.times = times

    def parts(self) -> tuple[Skeleton[Any, Any], ...]:
        return (self.body, self.again) if self.again is not None else (self.body,)

    def described(self) -> str:
        return f"iterate[{self.times} times]" if self.again is None else "iterate"


@overload
def stage(function: Callable[[A], Coroutine[Any, Any, B]], *, name: str | None = None) -> Stage[A, B]: ...
@overload
def stage(function: Callable[[A], B], *, name: str | None = None) -> Stage[A, B]: ...
def stage(function: Callable[[Any], Any], *, name: str | None = None) -> Stage[Any, Any]:
    """A function as a stage, under a name of its own if it has none to speak of."""
    return Stage(function, name)


def skeleton(stageable: Stageable[A, B]) -> Skeleton[A, B]:
    """A skeleton, of a function if it is none."""
    if isinstance(stageable, Skeleton):
        return stageable
    return Stage(stageable)


def farm(worker: Stageable[A, B]) -> Skeleton[A, B]:
    """A task farm: items are independent of one another, and as many are computed at once as there are workers."""
    return Farm(skeleton(worker))


@overload
def pipeline(first: Stageable[A, B], /) -> Skeleton[A, B]: ...
@overload
def pipeline(first: Stageable[A, B], second: Stageable[B, C], /) -> Skeleton[A, C]: ...
@overload
def pipeline(first: Stageable[A, B], second: Stageable[B, C], third: Stageable[C, D], /) -> Skeleton[A, D]: ...
@overload
def pipeline(
    first: Stageable[A, B], second: Stageable[B, C], third: Stageable[C, D], fourth: Stageable[D, E], /
) -> Skeleton[A, E]: ...
@overload
def pipeline(
    first: Stageable[A, B],
    second: Stageable[B, C],
    third: Stageable[C, D],
    fourth: Stageable[D, E],
    fifth: Stageable[E, Any],
    /,
    *more: Stageable[Any, Any],
) -> Skeleton[A, Any]: ...
def pipeline(*stages: Stageable[Any, Any]) -> Skeleton[Any, Any]:
    """Stages one after the other, each of them for another item at the same time."""
    if not stages:
        raise ValueError("a pipeline has a stage at least")
    return Pipeline([skeleton(one) for one in stages])


def map(each: Stageable[A, B], *, chunk: int | None = None) -> Skeleton[Sequence[A], list[B]]:
    """Computes the elements of each item, which is a sequence, at the same time; the results are a list in their order.

    `chunk` is how many elements go to a worker together; as many as make it worth while, if it is not given.
    """
    return Map(skeleton(each), _checked(chunk))


def reduce(combine: Callable[[A, A], A], *, chunk: int | None = None) -> Skeleton[Sequence[A], A]:
    """Makes one value of each item, which is a sequence that is not empty: `combine` is associative, and gets
    neighbours in their order.

    `chunk` is how many elements go to a worker together.
    """
    return Reduce(Stage(combine), _checked(chunk))


def scan(combine: Callable[[A, A], A], *, chunk: int | None = None) -> Skeleton[Sequence[A], list[A]]:
    """Parallel prefix: of each item, which is a sequence, a list of what `combine`, which is associative, makes of the
    elements up to each.

    `chunk` is how many elements go to a worker together.
    """
    return Scan(Stage(combine), _checked(chunk))


def iterate(
    body: Stageable[A, A], *, again: Callable[[A], bool] | None = None, times: int | None = None
) -> Skeleton[A, A]:
    """Applies `body` once, and as long as `again` says so of what came out, but `times` at the most; give one."""
    if again is None and times is None:
        raise ValueError("an iteration ends: give again, a function that says whether to go on, or times")
    if times is not None and times < 1:
        what = f"{times} times is no iteration; once is the least"
        raise ValueError(what)
    return Iterate(skeleton(body), None if again is None else cast("Stage[A, bool]", Stage(again)), times)


def _checked(chunk: int | None) -> int | None:
    if chunk is not None and chunk < 1:
        what = f"a chunk of {chunk} elements is none"
        raise ValueError(what)
    return chunk


def _name(function: Callable[..., Any]) -> str:
    if isinstance(function, functools.partial):
        return _name(function.func)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__).replace("<locals>.", "")
