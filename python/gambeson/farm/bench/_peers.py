"""How fast a farm is, beside others' pools on this host: a table.

Every system does the same work in turn, round after round; what is not installed is left out.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any, Protocol

from gambeson.farm._manager import Manager
from gambeson.farm._security import Security

WORKERS = 2
SPIN = 2e-3
"""Seconds that a task of the speed-up computes."""


def nothing(item: Any) -> Any:
    """A task that does nothing."""
    return item


def spin(item: Any) -> Any:
    """A task that keeps a processor busy for `SPIN` seconds of its time."""
    until = time.process_time() + SPIN
    while time.process_time() < until:
        pass
    return item


class System(Protocol):
    """Somebody who computes."""

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], batched: bool) -> list[Any]:
        """The results of all items; `batched`: it may put them together as it likes."""

    def close(self) -> None:
        """It has nothing more to do."""


class Ours:
    """This farm."""

    def __init__(self, workers: int, security: Security, shm: bool = True) -> None:
        self._made: dict[tuple[str, bool], Manager[Any, Any]] = {}
        self._options: dict[str, Any] = {"parallelism": workers, "security": security, "shm": shm}
        self._farm(nothing, False)

    def _farm(self, function: Callable[[Any], Any], batched: bool) -> Manager[Any, Any]:
        manager = self._made.get((function.__name__, batched))
        if manager is None:
            self.close()
            manager = Manager(function, chunk=None if batched else 1, **self._options)
            manager.wait_for_workers()
            self._made[function.__name__, batched] = manager
        return manager

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], batched: bool) -> list[Any]:
        return self._farm(function, batched).compute(items)

    def close(self) -> None:
        for manager in self._made.values():
            manager.close()
        self._made.clear()


class Processes:
    """Python's own pool of processes: no network, nothing sealed."""

    def __init__(self, workers: int) -> None:
        self._pool = futures.ProcessPoolExecutor(workers)
        self._workers = workers
        list(self._pool.map(nothing, range(workers)))

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], batched: bool) -> list[Any]:
        given = list(items)
        chunk = max(1, len(given) // (8 * self._workers)) if batched else 1
        return list(self._pool.map(function, given, chunksize=chunk))

    def close(self) -> None:
        self._pool.shutdown()


class Pool:
    """multiprocessing's pool."""

    def __init__(self, workers: int) -> None:
        import multiprocessing

        self._pool = multiprocessing.get_context("spawn").Pool(workers)
        self._pool.map(nothing, range(workers))

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], batched: bool) -> list[Any]:
        return self._pool.map(function, list(items), None if batched else 1)

    def close(self) -> None:
        self._pool.terminate()
        self._pool.join()


class Joblib:
    """joblib's own workers (loky)."""

    def __init__(self, workers: int) -> None:
        import joblib

        self._joblib = joblib
        self._workers = workers
        self.map(nothing, range(workers), True)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], batched: bool) -> list[Any]:
        parallel = self._joblib.Parallel(self._workers, batch_size="auto" if batched else 1, max_nbytes=None)
        return list(parallel(self._joblib.delayed(function)(item) for item in items))

    def close(self) -> None:
        from joblib.externals.loky import get_reusable_executor  # type: ignore[import-not-found,unused-ignore]

        get_reusable_executor().shutdown()


SYSTEMS: dict[str, Callable[[int], System]] = {
    "sealed": lambda workers: Ours(workers, Security()),
    "authenticated": lambda workers: Ours(workers, Security(trusted=["127.0.0.0/8"])),
    "sealed, TCP": lambda workers: Ours(workers, Security(), shm=False),
    "ProcessPoolExecutor": Processes,
    "multiprocessing.Pool": Pool,
    "joblib": Joblib,
}


Values = dict[str, dict[str, list[float]]]
"""By what was measured, then by system."""


def measure(rounds: int, quick: bool, step: Callable[[], object]) -> Values:
    """All of them."""
    values: Values = {}
    missing: set[str] = set()
    for turn in range(rounds):
        for name in list(SYSTEMS) if turn % 2 == 0 else reversed(SYSTEMS):
            try:
                found = {} if name in missing else _turn(SYSTEMS[name], WORKERS, quick)
            except ImportError as error:
                print(f"gambeson: {name} is left out: {error}", file=sys.stderr)
                missing.add(name)
                found = {}
            for what, value in found.items():
                values.setdefault(what, {}).setdefault(name, []).append(value)
            step()
    return values


def _turn(make: Callable[[int], System], workers: int, quick: bool) -> dict[str, float]:
    """What one system does in one round."""
    few = 4 if quick else 1
    found: dict[str, float] = {}
    began = time.perf_counter()
    system = make(workers)
    system.map(nothing, range(workers), False)
    found["start, s"] = time.perf_counter() - began
    try:
        system.map(nothing, range(2000), True)
        count = 100_000 // few
        began = time.perf_counter()
        system.map(nothing, range(count), True)
        found["no-op tasks, batched, 1000/s"] = count / (time.perf_counter() - began) / 1e3
        system.map(nothing, range(500), False)
        count = 10_000 // few
        began = time.perf_counter()
        system.map(nothing, range(count), False)
        found["no-op tasks, single, 1000/s"] = count / (time.perf_counter() - began) / 1e3
        found["round trip, us"] = statistics.median(_each(system, [0] * (600 // few), nothing)) * 1e6
        for size, times in (1 << 20, 40 // few), (16 << 20, 12 // few):
            payload = _array(size)
            _each(system, [payload] * 2, nothing)
            took = statistics.median(_each(system, [payload] * times, nothing))
            found[f"echo of {size >> 20} MB, MB/s"] = size / took / 1e6
        system.map(spin, range(4 * workers), True)
        count = 400 // few
        began = time.perf_counter()
        system.map(spin, range(count), True)
        found["speed-up at 2 ms tasks"] = count * SPIN / (time.perf_counter() - began)
    finally:
        system.close()
    return found


def _each(system: System, items: list[Any], function: Callable[[Any], Any]) -> list[float]:
    """The seconds that each item took there and back, by itself."""
    took = []
    for item in items:
        began = time.perf_counter()
        system.map(function, [item], False)
        took.append(time.perf_counter() - began)
    return took


def _array(size: int) -> Any:
    try:
        import numpy
    except ImportError:
        return bytes(size)
    return numpy.random.default_rng(1).random(size // 8)


def table(values: Values) -> str:
    """Medians, and the best in brackets."""
    there = [name for name in SYSTEMS if any(name in row for row in values.values())]
    lines = ["| | " + " | ".join(there) + " |", "|---|" + "---|" * len(there)]
    for what, row in values.items():
        lower = what.startswith(("start", "round"))
        cells = []
        for name in there:
            found = row[name]
            cells.append(f"{statistics.median(found):.3g} ({min(found) if lower else max(found):.3g})")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
