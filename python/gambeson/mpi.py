"""Encryption maps from Python: which bytes of a sealed file are under which label, for programs that use mpi4py.

This module works in jobs that `gambeson run` has started. It imports mpi4py when it is called, and not before.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["set_encryption_map"]


def set_encryption_map(
    fh: MPI.File,
    disp: int,
    etype: MPI.Datatype,
    filetype: MPI.Datatype,
    label: str,
    suite: str | None = None,
    block_size: int = 0,
    *,
    datarep: str = "native",
    info: MPI.Info | None = None,
) -> None:
    """Has the bytes that `filetype` covers, repeated from byte `disp` on, sealed under `label`.

    All ranks of the file call it, each with its own part of the map, before anything is written. It is independent of
    the view. `suite` is "xaes-256-gcm" (the default), "aes-256-gcm-siv" or "aes-256-xts"; `block_size` is how many
    bytes are sealed as one, and 0 leaves that as it is.

    Raises MPI.Exception with the class that MPI has for it, on all ranks alike: MPI.ERR_ACCESS without a key,
    MPI.ERR_ARG for a file that has data and for maps that overlap; and RuntimeError outside of `gambeson run`.
    """
    # Not at the top: who reads sealed files without MPI has no mpi4py.
    from mpi4py import MPI

    handles = [ctypes.c_void_p(MPI._handleof(of)) for of in (fh, etype, filetype, info or MPI.INFO_NULL)]
    file, element, tile, hints = handles
    name = None if suite is None else suite.encode()
    status = _function()(
        file, ctypes.c_int64(disp), element, tile, datarep.encode(), label.encode(), name, block_size, hints
    )
    if status != MPI.SUCCESS:
        raise MPI.Exception(status)


@functools.cache
def _function() -> Callable[..., Any]:
    """The routine, which `gambeson run` has loaded before the program."""
    try:
        return ctypes.CDLL(None).MPIX_File_set_encryption_map
    except AttributeError:
        what = "encryption maps need libgambeson-mpi.so, which `gambeson run` loads; start the job with it"
        raise RuntimeError(what) from None
