"""What pickling takes beside sealing, by the length of messages: what Fig. 6 of the paper is about."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from gambeson.farm._token import dump, load
from gambeson.farm.bench._bench import Bench
from gambeson.farm.bench._echo import ECHO
from gambeson.farm.bench._figure import Figure, Quantity
from gambeson.farm.bench._partner import echo, processor_time
from gambeson.link import Capability, Domain, Identity, Policy, Protection, Trust

LENGTHS = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)


def serialisation(bench: Bench) -> Figure:
    """Fig. 6, by what it is about: processor time."""
    against = Quantity("Processor time", "length of a message", "us for one message, one way", form="lengths")
    for side in bench.turns(TURNS):
        if isinstance(side, Protection):
            _links(bench, side, against)
        else:
            for kind, make in KINDS.items():
                for count in _lengths(bench):
                    against.curve(f"pickling {kind}").add(count, _pickling(bench, make(bench, count)) * 1e6)
    _differences(against)
    notes = [
        "Pickling is dumping and loading, an array's bytes beside the stream.",
        "Of links it is the processor time of all threads of both processes, for half an echo over TCP. Sealing is "
        "what a sealed link takes beyond one in clear, and authenticating what an authenticated one does: differences, "
        "which scatter as both do. Where nothing is left, nothing stands.",
    ]
    return Figure("serialisation", "Pickling beside sealing (on Fig. 6)", [against], notes)


def _lengths(bench: Bench) -> tuple[int, ...]:
    return LENGTHS[:4] if bench.quick else LENGTHS


def numbers(bench: Bench, count: int) -> list[int]:
    """A list of numbers that is pickled to some so many bytes."""
    chance = random.Random(bench.seed)
    return [chance.randrange(1 << 16, 1 << 31) for _ in range(count // 5)]


def records(bench: Bench, count: int) -> list[dict[str, Any]]:
    """Records of a few values, to some so many bytes."""
    chance = random.Random(bench.seed)
    return [
        {"id": at, "name": f"record {at}", "value": chance.random(), "tags": ("a", at % 7)} for at in range(count // 44)
    ]


def array(bench: Bench, count: int) -> Any:
    """An array; bytes where there is no numpy."""
    try:
        import numpy
    except ImportError:
        return bench.message(count)
    return numpy.frombuffer(bench.message(count), "u1")


KINDS = {"a list of numbers": numbers, "records": records, "an array": array}
LINKS = {
    Protection.NONE: "a link in clear",
    Protection.INTEGRITY: "an authenticated link",
    Protection.PRIVACY: "a sealed link",
}
TURNS: list[str | Protection] = ["pickling", *LINKS]


def _pickling(bench: Bench, value: Any) -> float:
    took: list[float] = []
    until = time.perf_counter() + bench.budget / 3
    while time.perf_counter() < until or len(took) < 3:
        began = time.thread_time()
        load(dump([value]))
        took.append(time.thread_time() - began)
    return statistics.median(took)


def _links(bench: Bench, protection: Protection, against: Quantity) -> None:
    identity = Identity.generate()
    with echo("--link", identity.key_hash.hex(), "--protection", protection.value) as (said, other):
        trust = Trust().pinned(bytes.fromhex(said["key"]), "echo")
        with Domain(identity, trust, policy=Policy.uniform(protection), shm=False) as domain:
            link = domain.startpoint(Capability.decode(bytes.fromhex(said["startpoint"])))
            assert link.protection is protection, link.protection
            for count in _lengths(bench):
                payload, into = bench.message(count), bytearray(count)
                for _ in range(3):
                    link.call_into(ECHO, payload, into)
                before, times = processor_time(other), 0
                until = time.perf_counter() + 2 * bench.budget
                while time.perf_counter() < until or times < 5:
                    link.call_into(ECHO, payload, into)
                    times += 1
                took = (processor_time(other) - before) / times / 2
                against.curve(LINKS[protection]).add(count, took * 1e6)


def _differences(against: Quantity) -> None:
    """What protection adds, where it can be told from nothing."""
    clear = against.curve(LINKS[Protection.NONE])
    for name, protection in ("authenticating", Protection.INTEGRITY), ("sealing", Protection.PRIVACY):
        for count, values in against.curve(LINKS[protection]).points.items():
            added = [with_ - without for with_, without in zip(values, clear.points[count], strict=True)]
            if statistics.median(added) > 0:
                against.curve(name).points[count] = added
