"""How many workers there are to be: what the user has a contract for (secure-muskel paper, section 2)."""

from __future__ import annotations

WINDOW = 1.0
"""Seconds that a rate is measured over."""
SLACK = 0.05
"""What a rate may miss a throughput by."""
LOADED = 0.7
"""Workers that compute for this share of their time are what a rate depends on."""


class Contract:
    """So many workers; or as many as keep a throughput, `parallelism` at the most. None, after `idle` seconds without
    work.

    It decides, and recruits nobody. Its clock is told.
    """

    def __init__(self, parallelism: int, throughput: float | None, idle: float | None) -> None:
        if parallelism < 1:
            what = f"a parallelism of {parallelism} is none; 1 is the least"
            raise ValueError(what)
        if throughput is not None and not throughput > 0:
            what = f"a throughput of {throughput} items a second is none"
            raise ValueError(what)
        if idle is not None and not idle > 0:
            what = f"workers that are released after {idle} idle seconds never compute"
            raise ValueError(what)
        self.parallelism = parallelism
        self.throughput = throughput
        self.idle = idle
        self._wanted = 1 if throughput is not None else parallelism
        self._worked: float | None = None
        self._since: float | None = None
        self._items = 0
        self._busy = 0.0

    @property
    def wanted(self) -> int:
        """How many workers there are to be."""
        return self._wanted

    def work(self, now: float) -> None:
        """There is something to do."""
        self._worked = now
        if self._wanted == 0:
            self._wanted = 1 if self.throughput is not None else self.parallelism
            self._since = None

    def look(self, now: float, joined: int, items: int, busy: float) -> None:
        """So many workers are there, so many items are through, and tasks took so many seconds of workers' time."""
        if self._worked is None:
            self._worked = now
        if self.idle is not None and now - self._worked > self.idle:
            self._wanted = 0
            return
        if self.throughput is None or self._wanted == 0:
            return
        if self._since is None or joined != self._wanted:
            # A window has the same workers from its beginning to its end.
            self._since, self._items, self._busy = now, items, busy
            return
        span = now - self._since
        if span < WINDOW:
            return
        rate, load = (items - self._items) / span, (busy - self._busy) / (span * joined)
        self._since = None
        if rate < self.throughput * (1 - SLACK):
            # Workers that wait for items are not what the rate lacks.
            if load > LOADED:
                needed = joined * self.throughput / max(rate, self.throughput / (4 * joined))
                self._wanted = min(self.parallelism, max(joined + 1, int(needed)))
        elif joined > 1 and rate * (joined - 1) / joined > self.throughput * (1 + SLACK):
            self._wanted = joined - 1
