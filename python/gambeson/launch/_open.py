"""What is closed before Python ends, and before the domains of links are."""

from __future__ import annotations

import atexit
import weakref

from gambeson.link._closing import Closing

# Links close their domains at the end, too: theirs was registered earlier, and so comes later.
OPEN: weakref.WeakSet[Closing] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for one in list(OPEN):
        one.close()
