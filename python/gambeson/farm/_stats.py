"""What a farm has done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gambeson.farm._pool import Pool


@dataclass(frozen=True)
class WorkerStats:
    """A worker."""

    name: str
    host: str
    pid: int | None
    tasks: int
    failed: int
    busy: float
    """Seconds that its tasks took."""
    in_flight: int
    sealed: int
    """Tasks that went to it sealed."""


@dataclass(frozen=True)
class StageStats:
    """A stage."""

    name: str
    items: int
    seconds: float
    """Of one item, as they are now."""
    busy: float
    """Of all items so far."""


@dataclass(frozen=True)
class Stats:
    """A farm."""

    elapsed: float
    """Seconds since it began."""
    waiting: int
    """Tasks that no worker has."""
    recovered: int
    """Tasks that a worker had when it was lost, and another one got."""
    retried: int
    verified: int
    """Tasks of the sample that workers agreed upon."""
    recalled: int
    """Tasks that nobody computed, since the journal had their results."""
    speculated: int
    """Tasks that took a worker long, and that another one was given, too."""
    workers: list[WorkerStats]
    stages: list[StageStats]

    @classmethod
    def of(cls, pool: Pool, elapsed: float) -> Stats:
        """What a pool has done."""
        workers = [
            WorkerStats(
                control.place.name, control.place.host, control.pid, control.done, control.failed, control.busy,
                len(control.in_flight), control.sealed,
            )
            for control in pool.controls.values()
            if control.joined
        ]  # fmt: skip
        stages = [StageStats(one.name, one.items, one.seconds, one.busy) for _, one in pool.staging.all()]
        counts = (pool.waiting(), pool.recovered, pool.retried, pool.verified, pool.recalled, pool.speculated)
        return cls(elapsed, *counts, workers, stages)

    def record(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)
