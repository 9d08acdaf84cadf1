"""Bandwidth against the length of messages: Fig. 4 (left) of the paper."""

from __future__ import annotations

import time

from gambeson.farm.bench._bench import SIDES, Bench, compute
from gambeson.farm.bench._figure import Figure, Quantity, sentence
from gambeson.farm.bench._tasks import same

LENGTHS = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)


def bandwidth(bench: Bench) -> Figure:
    """Fig. 4, left."""
    against = Quantity("Bandwidth", "length of a message", "MB/s", form="lengths")
    for side in bench.turns(SIDES):
        with bench.side(same, 1, side) as manager:
            for count in LENGTHS:
                if bench.quick and count > 1 << 20:
                    break
                payload = bench.message(count)
                compute(manager, [payload] * 2)
                began, times = time.perf_counter(), 0
                while time.perf_counter() - began < bench.budget:
                    compute(manager, [payload])
                    times += 1
                took = (time.perf_counter() - began) / times
                against.curve("tasks", side).add(count, 2 * count / took / 1e6)
    notes = [
        "One worker, and one task at a time, which gives back the bytes that it is given; pickling included.",
        f"The bandwidth is what goes there and comes back, over the time for both. {sentence(bench.site.told)}",
    ]
    return Figure("bandwidth", "Bandwidth (Fig. 4, left)", [against], notes)
