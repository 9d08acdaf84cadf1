"""What the processes of a cluster sent over links that are sealed and over others, and by which rule."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

from distributed.comm.addressing import get_address_host

SEALED, AUTHENTICATED = "sealed", "authenticated"


@dataclass
class Traffic:
    """What a process sent to a host over comms for which the same holds."""

    host: str
    accepted: bool
    """Whether over comms that were opened from there. Others carry requests."""
    protection: str
    """How large data that nobody labelled goes there: `sealed`, or `authenticated`."""
    rule: str
    """Why."""
    comms: int = 0
    sealed: int = 0
    """Bytes."""
    authenticated: int = 0
    """Bytes that were not encrypted."""


_lock = threading.Lock()
_sent: dict[tuple[str, bool, str, str], Traffic] = {}


def opened(peer: str, accepted: bool, protection: str, rule: str) -> Traffic:
    """A comm with this address was opened; where what it sends is counted."""
    same = (get_address_host(peer), accepted, protection, rule)
    with _lock:
        found = _sent.setdefault(same, Traffic(*same))
        found.comms += 1
    return found


def count(into: Traffic, sealed: int, authenticated: int) -> None:
    """So many bytes are on their way."""
    with _lock:
        into.sealed += sealed
        into.authenticated += authenticated


def traffic() -> list[Traffic]:
    """What this process sent, by where it went. `client.run(gambeson.dask.traffic)` has it of workers."""
    with _lock:
        return [replace(one) for one in _sent.values()]


@dataclass(frozen=True)
class Explanation:
    """For each process, how data goes where it went, and by which rule."""

    processes: dict[str, list[Traffic]]
    """By `scheduler` and the addresses of workers."""

    def records(self) -> list[dict[str, Any]]:
        """For machines."""
        return [{"process": process, **asdict(one)} for process, found in self.processes.items() for one in found]

    def __str__(self) -> str:
        out = []
        for process, found in self.processes.items():
            out.append(process)
            for one in sorted(found, key=lambda one: (one.host, one.accepted)):
                what = "unlabelled data that was asked for" if one.accepted else "requests"
                out.append(f"  to {one.host}, {what}: {one.protection}, {one.rule}")
                out.append(f"    {one.comms} comms, {one.sealed} bytes sealed, {one.authenticated} only authenticated")
        return "\n".join(out)


def explain(client: Any) -> Explanation:
    """Asks the scheduler and the workers of a client, one that is not asynchronous, how data goes between them."""
    return Explanation({"scheduler": client.run_on_scheduler(traffic), **client.run(traffic)})
