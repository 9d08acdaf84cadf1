"""Copies of tasks that take a worker long, for workers that have nothing to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from gambeson.farm._security import Security

if TYPE_CHECKING:
    from gambeson.farm._control import Control
    from gambeson.farm._task import Task

SLOW, SLOW_MIN = 4.0, 0.1
"""A task is slow that takes so many times what others of its stage take, and so many seconds."""


def taken_over(controls: Collection[Control], security: Security, now: float) -> Iterator[tuple[Control, Task]]:
    """Who is to get a copy of which task."""
    idle = [control for control in controls if control.has_room(False)]
    if not idle:
        return
    slow = [task for control in controls for task in control.in_flight.values() if _is_slow(task, now)]
    for task in sorted(slow, key=lambda task: task.since):
        able = [control for control in idle if _may_take_over(control, task, security)]
        if able:
            idle.remove(able[0])
            yield able[0], task


def _is_slow(task: Task, now: float) -> bool:
    if task.twin is not None or task.opinions is not None or not task.stage.items:
        return False
    return now - task.since > max(SLOW_MIN, SLOW * task.stage.seconds * task.token.count)


def _may_take_over(control: Control, task: Task, security: Security) -> bool:
    """Whether a worker may see a task, and takes and gives what the one does that has it."""
    has = task.control
    if has is None or (control.plain and not has.plain) or (has.trusted and not control.trusted):
        return False
    return security.may_see(control.place, task.labels)
