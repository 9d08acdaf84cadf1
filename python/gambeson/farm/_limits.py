"""Until when workers have to return tasks, and to leave off those that nobody waits for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gambeson.link import Error

if TYPE_CHECKING:
    from gambeson.farm._control import Control
    from gambeson.farm._task import Task

GRACE = 2.0
"""Seconds that a worker has to leave off a task before it counts as hung."""


class Limits:
    """Looks at the clock when it is asked to."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        """Seconds that a task may take."""
        self._deadlines: dict[int, Task] = {}
        self._graces: dict[int, tuple[float, Control]] = {}

    def begin(self, task: Task) -> None:
        """A worker gets a task."""
        task.since = time.monotonic()
        if self.timeout is not None:
            self._deadlines[task.number] = task
            task.deadline = task.since + self.timeout

    def end(self, number: int) -> None:
        """A worker does not have a task any more."""
        self._deadlines.pop(number, None)

    def stop(self, control: Control, number: int) -> None:
        """A worker is to leave off a task, in time if it is at it."""
        self.end(number)
        is_first = next(iter(control.in_flight)) == number
        control.take_back(number)
        with contextlib.suppress(Error):
            control.cancel(number)
        if is_first:
            control.stops.add(number)
            self._graces[number] = (time.monotonic() + GRACE, control)

    def left_off(self, control: Control, number: int) -> None:
        """A worker is through with a task that nobody waits for."""
        control.stops.discard(number)
        self._graces.pop(number, None)

    def late(self, now: float) -> Iterator[tuple[Control, Task]]:
        """Tasks that take too long, which are at their workers no longer. A twin of one that is given up is none."""
        for number, task in list(self._deadlines.items()):
            control = task.control
            if now < task.deadline or control is None:
                continue
            if number in control.in_flight:
                self.stop(control, number)
                yield control, task
            else:
                self.end(number)

    def hung(self, now: float) -> list[Control]:
        """Workers that did not leave off a task in time."""
        over = {number: control for number, (until, control) in self._graces.items() if now > until}
        for number in over:
            del self._graces[number]
        return list(over.values())
