"""Traces, and which session-key cache their jobs want."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gambeson import _native
from gambeson.sim._experiment import Source, load
from gambeson.sim._table import Table


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a trace holds."""

    name: str
    ranks: int
    operations: int
    """Calls and stretches of computation, of all ranks."""
    sends: int
    """Messages of the program; those within collectives are not among them."""
    receives: int
    any_source: int
    """Receives from any source, which are among `receives`."""
    collectives: int
    """Calls of collectives, of all ranks."""
    bytes: int
    """Bytes in those sends."""
    communicators: int
    compute_us: float
    """Processor time between the calls, of all ranks, in microseconds."""


def trace(path: str | os.PathLike[str]) -> TraceSummary:
    """Reads a trace: what `gambeson run --trace` wrote where the name ends in .gbt, GOAL for .goal, DUMPI for
    .meta, else NPBT1.

    Raises `TraceError` with file, rank and record, or `OSError`.
    """
    return TraceSummary(**json.loads(_native.summarise_trace(os.fspath(path))))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a replay measured."""

    hit_rate: float
    """Share of key look-ups that found their key, 0 to 1."""
    mean_ns: float
    """Mean latency of packets."""
    p99_ns: float
    """99 of 100 packets are no slower."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """A cache that was tried."""

    entries: int | None
    """None: no cache."""
    cache: Measured
    with_buffer: Measured | None
    """With a prefetch buffer beside it; None, where one does nothing."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Which session-key cache a job wants."""

    advice: str
    """A sentence or two."""
    target_percent: float
    entries: int | None
    """The cache that reaches the target, as a replay has shown; None, if none does."""
    keys: int
    """The most keys that one adapter uses."""
    lookups: int
    rows: tuple[CacheSize, ...]
    """The sizes that were replayed: none first, then from small to large."""
    buffer: int | None
    """Keys of the prefetch buffer; None, where one does nothing."""
    machine: dict[str, Any] = field(repr=False)
    """The experiment it was found with."""
    _table: Table = field(repr=False, compare=False)

    def table(self) -> Table:
        """A row for each size: `entries` (0: no cache), `hit_rate` (0 to 1), `mean_ns` and `p99_ns`; and the same three
        with the prefetch buffer, their names ending in `_with_buffer`."""
        return self._table


def advise(
    trace: str | os.PathLike[str],
    *,
    target_percent: float = 99.0,
    machine: Source | None = None,
    iterations: int | None = None,
    buffer: int | None = None,
) -> Advice:
    """Says how large a session-key cache a recorded job wants, and what a prefetch buffer would gain.

    Args:
        trace: the job's file, as `trace` reads it.
        target_percent: look-ups that must find their key, of 100.
        machine: an experiment whose traffic the job takes the place of. None: the adapters of the session-key-cache
            paper in a mesh, a node for each rank.
        iterations: only so many iterations of the job, from its first.
        buffer: keys that the prefetch buffer holds; as the machine has it, else 8.

    Raises what `Experiment.run` raises. It runs on all cores and without Python's lock; Ctrl-C ends it.
    """
    if not 0 < target_percent <= 100:
        raise ValueError(f"a target of {target_percent} % cannot be reached; give a number above 0 and up to 100")
    on = None if machine is None else load(machine)._source
    ended = threading.Event()

    def watch(_us: float) -> None:
        if ended.is_set():
            raise _native.StoppedError("the advice is not wanted any more")

    # Replays on threads of their own, so that this one can hear of Ctrl-C.
    with ThreadPoolExecutor(1, thread_name_prefix="gambeson-advise") as thread:
        path = os.fspath(trace)
        try:
            running = thread.submit(_native.advise_job, path, target_percent, on, iterations, buffer, watch)
            text, table = running.result()
        finally:
            ended.set()
    values: dict[str, Any] = json.loads(text)

    def measured(cell: dict[str, float] | None) -> Measured | None:
        return None if cell is None else Measured(**cell)

    rows = (CacheSize(row["entries"], Measured(**row["cache"]), measured(row["with_buffer"])) for row in values["rows"])
    return Advice(**{**values, "rows": tuple(rows)}, _table=Table(table))
