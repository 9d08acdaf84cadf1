"""Gambeson from Python.

`gambeson.open` reads sealed files without MPI, `gambeson.link` has links, `gambeson.farm` and `gambeson.Executor`
compute on workers over them, and `gambeson.sim` is the simulator of fabrics that seal what they send.
"""

from typing import TYPE_CHECKING, Any

from gambeson._files import Region, SealedFile, open
from gambeson._native import VERSION as __version__

if TYPE_CHECKING:
    from gambeson.farm import Executor

__all__ = ["Executor", "Region", "SealedFile", "__version__", "open"]


def __getattr__(name: str) -> Any:
    # What the farm needs is imported by who wants a farm.
    if name == "Executor":
        from gambeson.farm import Executor

        return Executor
    what = f"module 'gambeson' has no attribute {name!r}"
    raise AttributeError(what)
