"""What the tasks of measurements do."""

from __future__ import annotations

import time
from typing import Any

WAITS, COMPUTES = "waiting", "computing"


def work(item: tuple[str, float, bytes]) -> bytes:
    """Takes so many seconds, and gives back the bytes that came with it."""
    how, seconds, payload = item
    if how == COMPUTES:
        spin(seconds)
    elif seconds:
        time.sleep(seconds)
    return payload


def spin(seconds: float) -> None:
    """Computes for so many seconds of its thread's time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def same(item: Any) -> Any:
    """Gives back what it is given."""
    return item
