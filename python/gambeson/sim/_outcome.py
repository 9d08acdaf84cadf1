"""What comes out of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gambeson._native import NativeTable
from gambeson.sim._table import Table


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of packets, from the sender's adapter until they are opened in the receiver's, in nanoseconds."""

    count: int
    """Packets that were measured; the others are 0 when this is."""
    mean_ns: float
    deviation_ns: float
    """Standard deviation."""
    min_ns: float
    p50_ns: float
    """Half are no greater, within 1/16."""
    p99_ns: float
    """99 of 100 are no greater, within 1/16."""
    max_ns: float


@dataclass(frozen=True, slots=True)
class Flow:
    """What one flow met: synthetic sources under one name, or a replay."""

    name: str
    latency: Latency
    accepted: float
    """Share of a link's rate that arrived at each node, on average: 0 to 1. 0 in a replay."""
    hops: float
    """Links that a packet crossed, on average. 0 in a replay."""
    series: tuple[tuple[float, float], ...]
    """The course over time, where `measure.interval_us` asks for it: (start of interval, mean latency), both in ns."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a replayed job went."""

    name: str
    ended_us: float | None
    """When its last process ended, in simulated microseconds; None, when time was up before."""
    recorded_us: float | None
    """How long it took when it was recorded, in microseconds of the real world; None, where the trace does not say."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Packets that the adapters they came to did not hand on, by the check that they failed."""

    p_key: int
    queue_pair: int
    q_key: int
    plain: int
    """A plain ICRC where there is a key for a tag."""
    tag: int
    replayed: int
    """Sent before, or so long ago that nobody knows."""
    r_key: int


@dataclass(frozen=True, slots=True)
class Attack:
    """What the node of `attack` came to."""

    overheard: int
    """Packets of others that it heard."""
    readable: int
    """Those that it could read."""
    sent: int
    taken: int
    """Packets of its own that receivers handed to a process."""
    refused: Refusals
    sender_claimed: tuple[int, int]
    """Its packets that named it as their sender, and that named another."""
    sender_traced: tuple[int, int]
    """Those that the switches' marks led back to it, and to another."""
    honest_refused: Refusals
    alerts: int
    """Alerts of receivers for wrong tags in a row."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of an experiment. Two outcomes are equal when everything but the time of the real world is."""

    experiment: dict[str, Any]
    """All that it came from, with defaults and seed; `load` takes it."""
    nodes: int
    """End nodes."""
    simulated_us: float
    flows: tuple[Flow, ...]
    """One for each entry of `traffic`, or the replay as one."""
    jobs: tuple[JobEnd, ...]
    """One for each copy of each trace."""
    sent: int
    """Packets handed to adapters."""
    arrived: int
    dropped: int
    """Packets that filters dropped."""
    refused: Refusals
    """Honest packets that their receivers did not take, where adapters check packets."""
    acknowledged: int
    """Acknowledgements that arrived."""
    attack: Attack | None
    leaked: int
    """Packets under forged keys that came through."""
    traps: int
    """Traps that the subnet manager got."""
    blamed: tuple[int, int]
    """Traps that named the true sender, and that named another."""
    hit_rate: float
    """Share of key look-ups that hit, 0 to 1."""
    lookups: int
    busiest_link: float
    """Share of time that the busiest link was sending, 0 to 1."""
    events: int
    seconds: float = field(compare=False)
    """Time of the real world that the run took."""
    json: str = field(compare=False, repr=False)
    """The same as `gambeson sim run --json` writes it."""

    @classmethod
    def of(cls, text: str) -> Outcome:
        """Reads what `gambeson sim run --json` wrote."""
        values: dict[str, Any] = json.loads(text)
        flows = values.pop("flows")
        jobs = values.pop("jobs")
        refused = Refusals(**values.pop("refused"))
        attack = values.pop("attack")
        return cls(
            **{**values, "blamed": tuple(values["blamed"])},
            flows=tuple(
                Flow(**{**flow, "latency": Latency(**flow["latency"]), "series": tuple(map(tuple, flow["series"]))})
                for flow in flows
            ),
            jobs=tuple(JobEnd(**job) for job in jobs),
            refused=refused,
            attack=None if attack is None else _attack(attack),
            json=text,
        )

    def table(self) -> Table:
        """A row for each flow, with the columns of `Table`."""
        return Table(NativeTable.of(self.json))


def _attack(values: dict[str, Any]) -> Attack:
    refusals = {name: Refusals(**values[name]) for name in ("refused", "honest_refused")}
    pairs = {name: tuple(values[name]) for name in ("sender_claimed", "sender_traced")}
    return Attack(**{**values, **refusals, **pairs})
