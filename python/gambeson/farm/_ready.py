"""Tasks that no worker has: who may have which, and which comes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gambeson.farm._control import Control
from gambeson.farm._security import Security

if TYPE_CHECKING:
    from gambeson.farm._frames import Frame
    from gambeson.farm._task import Task


class Ready:
    """Fireable instructions, by the labels that say who may see them."""

    def __init__(self, security: Security) -> None:
        self.security = security
        self.known: deque[Task] = deque()
        """Tasks whose results the journal has."""
        self._second: list[Task] = []
        """Tasks of the sample, which somebody else is to compute, too."""
        self._queues: dict[frozenset[str], deque[Task]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values())) + len(self._second) + len(self.known)

    def wants_workers(self) -> bool:
        """Whether there are some for workers."""
        return bool(self._second) or any(self._queues.values())

    def _queue(self, task: Task) -> deque[Task]:
        labels = task.labels & self.security.restricted
        return self._queues.setdefault(labels, deque())

    def add(self, task: Task) -> None:
        """A task that nobody had."""
        self._queue(task).append(task)

    def add_again(self, task: Task) -> None:
        """A task that somebody had: of the sample, if there are results of it; else it comes before the others."""
        task.control = None
        task.since = 0.0
        if task.opinions:
            self._second.append(task)
        else:
            self._queue(task).appendleft(task)

    def remove(self, task: Task) -> bool:
        """Nobody wants a task any more. Whether no worker has it."""
        queue = self._queue(task)
        if task.control is not None or task not in queue:
            return False
        queue.remove(task)
        return True

    def drop(self, run: Frame) -> None:
        """Nobody wants those of a run any more."""
        for queue in (self._second, self.known, *self._queues.values()):
            left = [task for task in queue if task.frame.run is not run]
            queue.clear()
            queue.extend(left)

    def clear(self) -> list[Task]:
        """All of them, which are gone then."""
        left = [*self._second, *self.known, *(task for queue in self._queues.values() for task in queue)]
        self._second.clear()
        self.known.clear()
        for queue in self._queues.values():
            queue.clear()
        return left

    def judge(self, security: Security) -> None:
        """Other rules hold."""
        self.security = security
        # Who was to be asked for another result may not see its data any more.
        second = [task for task in self._second if task.labels & security.restricted]
        self._second = [task for task in self._second if task not in second]
        waiting = [*second, *(task for queue in self._queues.values() for task in queue)]
        self._queues.clear()
        for task in sorted(waiting, key=lambda task: task.number):
            task.opinions = None
            task.since = 0.0
            self.add(task)

    def take(self, control: Control) -> Task | None:
        """The task that this worker is to have: of those that it may see, the one that came first."""
        for task in self._second:
            if self.may_judge(control, task):
                self._second.remove(task)
                return task
        found: deque[Task] | None = None
        for labels, queue in self._queues.items():
            if not queue or (labels and not self.security.may_see(control.place, labels)):
                continue
            if queue[0].attempts and control.in_flight:
                continue
            if found is None or queue[0].number < found[0].number:
                found = queue
        return found.popleft() if found is not None else None

    def may_judge(self, control: Control, task: Task) -> bool:
        """Whether a worker can compute a task of the sample that others have computed."""
        if not self.security.may_see(control.place, task.labels):
            return False
        return all(opinion.control is not control for opinion in task.opinions or ())

    def overdue(self, controls: Iterable[Control], patience: float, now: float) -> list[Task]:
        """Tasks that no worker may see, and that have waited for one long enough."""
        found = []
        for labels, queue in self._queues.items():
            if not labels or not queue:
                continue
            if any(self.security.may_see(control.place, labels) for control in controls):
                for task in queue:
                    task.since = 0.0
                continue
            for task in list(queue):
                task.since = task.since or now
                if now - task.since > patience:
                    queue.remove(task)
                    found.append(task)
        return found
