"""Gambeson from Python.

`gambeson.open` reads sealed files without MPI, `gambeson.link` has links, `gambeson.sim` the simulator of fabrics that
seal what they send.
"""

from gambeson._files import Region, SealedFile, open
from gambeson._native import VERSION as __version__

__all__ = ["Region", "SealedFile", "__version__", "open"]
