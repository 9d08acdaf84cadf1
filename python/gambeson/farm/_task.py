"""Tasks: fired instructions, and the stages that they are of (secure-muskel paper, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array

    from gambeson.farm._annotation import Marks
    from gambeson.farm._code import StagedCode
    from gambeson.farm._control import Control
    from gambeson.farm._frames import Frame
    from gambeson.farm._graph import Instruction
    from gambeson.farm._protocol import Mode
    from gambeson.farm._token import Token
    from gambeson.farm._verify import Opinion


class Task:
    """A fired instruction: a token, and what is to be done with it."""

    __slots__ = (
        "after", "attempts", "causes", "control", "deadline", "entry", "expected", "frame", "labels_out", "marks",
        "mode", "number", "only", "opinions", "pickled", "place", "retries", "since", "stage", "token", "twin",
    )  # fmt: skip

    def __init__(self, number: int, stage: Staged, mode: Mode, token: Token, frame: Frame, place: int) -> None:
        self.number = number
        self.stage = stage
        self.mode = mode
        self.token = token
        self.frame = frame
        self.place = place
        self.marks = stage.marks
        self.labels_out = stage.marks.labels_out(token.labels)
        self.after: Instruction | None = None
        self.only: array[int] | None = None
        self.attempts = 0
        self.causes: list[str] = []
        self.retries = 0
        self.control: Control | None = None
        self.pickled = False
        """Whether its result may be a pickle."""
        self.deadline = 0.0
        self.since = 0.0
        self.expected = 0.0
        self.opinions: list[Opinion] | None = None
        """What workers said so far, of a task of the sample."""
        self.twin: Task | None = None
        """The same task at another worker, which may be faster."""
        self.entry: bytes | None = None
        """What its entry in the journal is called."""

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all that whoever computes it sees."""
        return self.marks.labels_in(self.token.labels) | self.labels_out

    def copy(self, number: int) -> Task:
        """Its twin, for another worker."""
        twin = Task(number, self.stage, self.mode, self.token, self.frame, self.place)
        twin.after, twin.only, twin.retries, twin.entry = self.after, self.only, self.retries, self.entry
        twin.attempts, twin.causes = self.attempts, list(self.causes)
        twin.twin, self.twin = self, twin
        return twin

    def part(self) -> Task | None:
        """It and its twin, which is returned, each go on as if there was no other."""
        twin = self.twin
        if twin is not None:
            self.twin = twin.twin = None
        return twin


@dataclass(eq=False)
class Staged:
    """A stage as it is staged."""

    number: int
    name: str
    marks: Marks
    is_coroutine: bool
    code: StagedCode
    parts: list[bytes]
    print: bytes | None = None
    """Its fingerprint, if there is a journal."""
    seconds: float = 0.0
    """Of one item; 0 as long as nothing is known."""
    size: float = 0.0
    """Bytes of one item."""
    items: int = 0
    busy: float = 0.0

    def took(self, seconds: float, items: int, size: int) -> None:
        """Some items of so many bytes took so long."""
        each, bytes_each = seconds / max(1, items), size / max(1, items)
        self.seconds = each if self.items == 0 else 0.8 * self.seconds + 0.2 * each
        self.size = bytes_each if self.items == 0 else 0.8 * self.size + 0.2 * bytes_each
        self.items += items
        self.busy += seconds
