"""Gambeson from Python: `gambeson.sim` simulates fabrics whose adapters seal what they send."""

from gambeson._native import VERSION as __version__

__all__ = ["__version__"]
