"""What is sensitive: annotations of functions and of data (secure-muskel paper, section 5).

They say what is to be kept from others, and nothing of how. A stage's function is annotated where it is defined:

    @sensitive_code
    @sensitive_data("inout", label="patients")
    def render(image): ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

SENSITIVE = "sensitive"
"""The label of what is sensitive and has no other."""

MARKS = "__gambeson_marks__"
"""The attribute of a function that has them."""


@dataclass(frozen=True)
class Marks:
    """What a stage's function was annotated with."""

    code: bool = False
    """Its code is not to be read by others."""
    takes: frozenset[str] = field(default_factory=frozenset)
    """Labels that all it is given has."""
    gives: frozenset[str] = field(default_factory=frozenset)
    """Labels that all it returns has."""
    declassifies: frozenset[str] = field(default_factory=frozenset)
    """Labels that what it returns does not have, whatever it was made of."""

    def labels_in(self, labels: frozenset[str]) -> frozenset[str]:
        """The labels of what it is given, if it comes with these."""
        return labels | self.takes

    def labels_out(self, labels: frozenset[str]) -> frozenset[str]:
        """The labels of what it returns for something with these: a label follows what is derived from its data."""
        return ((labels | self.takes) - self.declassifies) | self.gives


def marks(function: Callable[..., Any]) -> Marks:
    """What a function was annotated with."""
    found = getattr(function, MARKS, None)
    return found if isinstance(found, Marks) else Marks()


def _marked(function: F, changed: Marks) -> F:
    try:
        setattr(function, MARKS, changed)
    except AttributeError:
        what = (
            f"{function!r} takes no annotation, being no function of Python's own; wrap it in one: def stage(item): ..."
        )
        raise TypeError(what) from None
    return function


def sensitive_code(function: F) -> F:
    """The function's code is sensitive: it is sealed wherever it is staged to."""
    return _marked(function, replace(marks(function), code=True))


def sensitive_data(where: Literal["in", "out", "inout"], *, label: str = SENSITIVE) -> Callable[[F], F]:
    """What the function is given, returns, or both, is sensitive, and has this label.

    It is sealed wherever it goes, goes only to hosts that are cleared for its label, if some are, and so does all that
    is derived from it, until a stage that `declassifies` it.
    """
    if where not in ("in", "out", "inout"):
        what = f'{where!r} says nowhere where data is; it is "in", "out" or "inout"'
        raise ValueError(what)
    named = frozenset({check_label(label)})

    def annotate(function: F) -> F:
        before = marks(function)
        takes = before.takes | named if where != "out" else before.takes
        gives = before.gives | named if where != "in" else before.gives
        return _marked(function, replace(before, takes=takes, gives=gives))

    return annotate


def declassifies(label: str = SENSITIVE) -> Callable[[F], F]:
    """What the function returns is not sensitive any more in the way that this label says, whatever it was made of."""
    named = frozenset({check_label(label)})
    return lambda function: _marked(
        function, replace(marks(function), declassifies=marks(function).declassifies | named)
    )


def check_label(label: str) -> str:
    """A label, if it is one."""
    if not label or len(label) > 64 or any(character.isspace() for character in label):
        what = f"{label!r} is no label; use up to 64 letters without spaces between them"
        raise ValueError(what)
    return label


@dataclass(frozen=True)
class Labelled(Generic[T]):
    """An item of a stream with labels of its own: the stages get its value."""

    value: T
    labels: frozenset[str]


def labelled(value: T, *labels: str) -> Labelled[T]:
    """An item of a stream that is sensitive, with these labels, or `sensitive` without any."""
    return Labelled(value, frozenset(check_label(label) for label in labels or (SENSITIVE,)))
