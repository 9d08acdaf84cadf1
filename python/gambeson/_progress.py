"""Who hears how far something is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[float, float | None], object]


@contextmanager
def told(progress: bool | Progress, unit: str) -> Iterator[Progress]:
    """The caller's function; or, for True, tqdm's bar, where tqdm is installed and somebody looks."""
    if callable(progress):
        yield progress
        return
    try:
        if not progress:
            raise ImportError
        from tqdm.auto import tqdm
    except ImportError:
        yield lambda done, total: None
        return
    with tqdm(unit=unit, disable=None) as bar:

        def tell(done: float, total: float | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield tell
