"""Who hears how far something is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tqdm import tqdm

Progress: TypeAlias = Callable[[float, float | None], object]


@contextmanager
def told(progress: bool | Progress, unit: str) -> Iterator[Progress]:
    """The caller's function; or, for True, tqdm's bar, where tqdm is installed and somebody looks."""
    if callable(progress):
        yield progress
        return
    bar: tqdm[Any] | None = None

    def tell(done: float, total: float | None) -> None:
        # Only now is it known how long a bar is, which in a notebook cannot be said later.
        nonlocal bar
        bar = bar if bar is not None else _bar(unit, total)
        if bar is not None:
            bar.total = total
            bar.update(done - bar.n)

    try:
        yield tell if progress else lambda done, total: None
    finally:
        if bar is not None:
            bar.close()


def _bar(unit: str, total: float | None) -> tqdm[Any] | None:
    try:
        with warnings.catch_warnings():
            # A notebook without ipywidgets gets a bar of text, and needs no word about it.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return None
    if type(sys.stdout).__module__.startswith("ipykernel."):
        # Somebody looks at a notebook, though it is no terminal; what goes to its standard error is shown as one.
        return tqdm(unit=unit, total=total, file=sys.stdout)
    return tqdm(unit=unit, total=total, disable=None)
