"""Who takes what workers say: the manager's thread, or, shorter by two changes of threads, who waits for a result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

RECENT = 5e-3
"""Seconds for which the manager's thread keeps away when somebody has waited: he comes back."""
RETRY = 2e-3
"""Seconds after which somebody who waits tries again to take his own turn."""


class Turns:
    """One at a time takes messages and handles them, so that they are handled in their order."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._waited = 0.0

    def wait(self, is_there: Callable[[float], bool], take: Callable[[float], None], patience: float) -> None:
        """Takes turns until something is there, at most so many seconds. `is_there` waits for it as long as it is
        told.
        """
        now = time.monotonic()
        deadline = now + patience
        while now < deadline and not is_there(0.0):
            self._waited = now
            if self._turn.acquire(blocking=False):
                try:
                    take(deadline - now)
                finally:
                    self._waited = time.monotonic()
                    self._turn.release()
            else:
                # Whoever has the turn may bring it.
                is_there(RETRY)
            now = time.monotonic()

    def stand_in(self, take: Callable[[float], None], patience: float) -> None:
        """Takes a turn, unless somebody who waits does."""
        if time.monotonic() - self._waited < RECENT:
            time.sleep(RECENT)
            return
        with self._turn:
            take(patience)
