"""Speed-up against workers, at the same grain, and against the share of sealed links: Figs. 3, 4 (right) and 5 of the
paper.
"""

from __future__ import annotations

import statistics

from gambeson.farm.bench._bench import SIDES, Bench
from gambeson.farm.bench._figure import Figure, Quantity, length, seconds
from gambeson.farm.bench._tasks import COMPUTES, WAITS, work

GRAINS = (0.25e-3, 1e-3, 5e-3, 25e-3)
"""What a task takes."""
BYTES = 64 << 10
"""What goes to a worker and back for a task, together."""
ISO = (70, 300)
"""Values of G that the paper has."""
SHARED_GRAIN = 1e-3
DISTRIBUTED = (8, 128, 512 << 10)
SHARED_BYTES = (8, 128, 64 << 10, 512 << 10)
"""Of which the paper has the first two."""


def waiting(bench: Bench) -> str:
    """What every such figure has to say of its tasks."""
    number = bench.processors
    return (
        f"With {number} processors tasks for more than {number} workers wait in place of computing; {bench.site.told}."
    )


def speedup(bench: Bench) -> Figure:
    """Fig. 3."""
    against = Quantity("Speed-up", "workers", "speed-up", split=True, ideal=True)
    payload = bench.message(BYTES // 2)
    communication: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in bench.turns(SIDES):
        tasks = [(how, grain, payload) for how in (WAITS, COMPUTES) for grain in GRAINS]
        alone = {task: bench.alone(*task) for task in tasks}
        for count in bench.counts():
            with bench.side(work, count, side) as manager:
                if count == 1:
                    communication[side].append(bench.communication(manager, payload))
                for task in tasks:
                    how, grain, _ = task
                    if how == WAITS or count <= bench.processors:
                        curve = against.curve(f"W = {seconds(grain)}", side, how)
                        curve.add(count, bench.speedup(manager, count, task, alone[task]))
    notes = [waiting(bench), f"C, the bytes there and back, are {length(BYTES)}."]
    for side in SIDES:
        took = statistics.median(communication[side])
        grains = ", ".join(f"{grain / took:.3g}" for grain in GRAINS)
        notes.append(f"{side}: Tc is {seconds(took)}, so that G = W / Tc is {grains}.")
    return Figure("speedup", "Speed-up for several grains (Fig. 3)", [against], notes)


def iso_grain(bench: Bench) -> Figure:
    """Fig. 4, right."""
    against = Quantity("Iso-grain speed-up", "workers", "speed-up", ideal=True)
    measured = Quantity("What that is", "G", "ms", form="table")
    payload = bench.message(BYTES // 2)
    for side in bench.turns(SIDES):
        with bench.side(work, 1, side) as manager:
            took = bench.communication(manager, payload)
        tasks = {grain: (WAITS, grain * took, payload) for grain in ISO}
        alone = {grain: bench.alone(*task) for grain, task in tasks.items()}
        for grain in ISO:
            measured.curve("Tc", side).add(grain, took * 1e3)
            measured.curve("Tw", side).add(grain, alone[grain] * 1e3)
        for count in bench.counts():
            with bench.side(work, count, side) as manager:
                for grain, task in tasks.items():
                    curve = against.curve(f"G = {grain}", side)
                    curve.add(count, bench.speedup(manager, count, task, alone[grain]))
    notes = [waiting(bench), f"C is {length(BYTES)}. Tc is measured in each turn, and the tasks wait G times as long."]
    return Figure("iso-grain", "Speed-up at the same grain (Fig. 4, right)", [against, measured], notes)


def shares(workers: int) -> list[int]:
    """Numbers of sealed links: none, a quarter, half, and so on."""
    return sorted({workers * quarters // 4 for quarters in range(5)})


def share(bench: Bench) -> Figure:
    """Fig. 5."""
    against = Quantity(f"Speed-up of {bench.workers} workers", "sealed links, %", "speed-up")
    half = bench.workers // 2
    last = f"sealed from worker {bench.workers - half + 1} on"
    tasks = Quantity("Tasks by worker", f"worker ({last})", "tasks, %", form="bars")
    for sealed in bench.turns(shares(bench.workers)):
        with bench.farm(work, bench.workers, sealed) as manager:
            for count in SHARED_BYTES:
                name = f"C = {length(count)}"
                task = (WAITS, SHARED_GRAIN, bench.message(count // 2))
                before = {worker.name: worker.tasks for worker in manager.stats().workers}
                alone = bench.alone(*task)
                against.curve(name).add(
                    100 * sealed / bench.workers, bench.speedup(manager, bench.workers, task, alone)
                )
                if sealed == half and count in DISTRIBUTED:
                    done = {worker.name: worker.tasks - before[worker.name] for worker in manager.stats().workers}
                    for at in range(bench.workers):
                        portion = done[f"w{at + 1}-1"] / sum(done.values())
                        tasks.curve(name).add(at + 1, portion * 100)
    notes = [waiting(bench), f"W is {seconds(SHARED_GRAIN)}; tasks by worker are those with links {last}."]
    return Figure("share", "Selectively sealed links (Fig. 5)", [against, tasks], notes)
