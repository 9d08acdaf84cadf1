"""Gambeson from Python: `gambeson.link` has links, `gambeson.sim` the simulator of fabrics that seal what they send."""

from gambeson._native import VERSION as __version__

__all__ = ["__version__"]
