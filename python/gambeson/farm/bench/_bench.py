"""What every figure is measured with: farms whose workers are sealed or not, turns, and times."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gambeson.farm._manager import Manager
from gambeson.farm._security import Security
from gambeson.farm.bench._figure import PLAIN, SEALED
from gambeson.farm.bench._site import Site
from gambeson.farm.bench._tasks import WAITS, work

T = TypeVar("T")
SIDES = (PLAIN, SEALED)
PINGS = 500
"""Tasks of no work by which communication is measured."""


@dataclass
class Bench:
    """A call of the command."""

    site: Site
    workers: int
    rounds: int
    quick: bool
    seed: int
    gambeson: str | None
    """The command line, for its proxies."""
    folder: Path
    """For certificates and keys of this call."""
    step: Callable[[], object]

    @property
    def processors(self) -> int:
        """Up to as many workers compute at a time."""
        return len(os.sched_getaffinity(0))

    def counts(self) -> list[int]:
        """Numbers of workers to measure."""
        few = {1, 2, 4} if self.quick else {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}
        return sorted({count for count in few if count < self.workers} | {self.workers})

    def turns(self, sides: Sequence[T]) -> Iterator[T]:
        """Each side once in each round; who is first in one is last in the next."""
        for turn in range(self.rounds):
            for side in sides if turn % 2 == 0 else sides[::-1]:
                yield side
                self.step()

    def message(self, count: int) -> bytes:
        """A message of so many bytes, the same for every call with this seed."""
        return random.Random(self.seed).randbytes(count)

    @contextlib.contextmanager
    def farm(
        self, program: Callable[[Any], Any], count: int, sealed: int, **options: Any
    ) -> Iterator[Manager[Any, Any]]:
        """A farm of so many workers, the last `sealed` of them on hosts that are not trusted. Each task goes alone."""
        insecure = [f"w{at + 1}-1" for at in range(count - sealed, count)]
        security = Security(trusted=[self.site.network], insecure_hosts=insecure, unpickle=[self.site.network])
        places = [self.site.recruiter(at) for at in range(count)]
        options = {"chunk": 1, "shm": False, "security": security, "workers": places, **options}
        with Manager(program, parallelism=count, **options) as manager:
            manager.wait_for_workers()
            yield manager
            for worker in manager.stats().workers:
                if worker.sealed != (worker.tasks if worker.name in insecure else 0):
                    what = f"worker {worker.name} had {worker.tasks} tasks, of which {worker.sealed} were sealed"
                    raise RuntimeError(what)

    def side(
        self, program: Callable[[Any], Any], count: int, side: str, **options: Any
    ) -> contextlib.AbstractContextManager[Manager[Any, Any]]:
        """A farm all of whose workers are of one side."""
        return self.farm(program, count, count if side == SEALED else 0, **options)

    def communication(self, manager: Manager[Any, Any], payload: bytes) -> float:
        """Tc: seconds for a task's data there and back, the worker's own time for it taken off."""
        compute(manager, [(WAITS, 0.0, payload)] * 5)
        before, took = busy(manager), []
        for _ in range(PINGS // 20 if self.quick else PINGS):
            began = time.perf_counter()
            compute(manager, [(WAITS, 0.0, payload)])
            took.append(time.perf_counter() - began)
        return statistics.median(took) - (busy(manager) - before) / len(took)

    def alone(self, how: str, seconds: float, payload: bytes) -> float:
        """Tw: seconds for such a task without any farm, one after the other."""
        count = max(3, round(self.budget / 2 / seconds))
        began = time.perf_counter()
        for _ in range(count):
            work((how, seconds, payload))
        return (time.perf_counter() - began) / count

    @property
    def budget(self) -> float:
        """Seconds for one value."""
        return 0.05 if self.quick else 0.3

    def speedup(self, manager: Manager[Any, Any], count: int, task: tuple[str, float, bytes], alone: float) -> float:
        """How much faster such tasks are with so many workers than without any farm."""
        # As many for each worker: of a few long ones some would be idle at the end.
        times = count * max(4, round(self.budget / alone))
        compute(manager, [task] * count)
        began = time.perf_counter()
        compute(manager, [task] * times)
        return times * alone / (time.perf_counter() - began)


def compute(manager: Manager[Any, Any], items: Sequence[Any]) -> None:
    """Computes items, and keeps no result: they may be long."""
    for _ in manager.run(items, ordered=False):
        pass


def busy(manager: Manager[Any, Any]) -> float:
    """Seconds that workers say their tasks took so far."""
    return sum(worker.busy for worker in manager.stats().workers)
