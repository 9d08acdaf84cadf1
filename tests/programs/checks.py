"""Named checks inside one MPI job. Each begins on all ranks together, with a communicator of its own; the first failure
ends the job. Rank 0 prints `begin NAME` and `ok NAME`, so that a hang has a name too, and `all ok` at the end.

    python program.py [--only NAME,..] [--skip NAME,..] [--list]
"""

import os
import sys
import time
import traceback

import mpi4py
import numpy as np

mpi4py.rc.thread_level = "multiple" if os.environ.get("CHECKS_THREADS") else "single"
mpi4py.rc.recv_mprobe = "CHECKS_WITHOUT_MPROBE" not in os.environ
from mpi4py import MPI

_checks = []
WORLD = MPI.COMM_WORLD
MIB = 1 << 20
_base = np.zeros(0, np.uint8)


def check(function):
    """Registers a check; it is called with a duplicate of the world communicator."""
    _checks.append(function)
    return function


def pattern(size, seed=0):
    """`size` bytes, other ones for another seed, without a period that could hide a shifted or repeated block."""
    global _base
    seed %= 4093
    if _base.size < size + 4093:
        index = np.arange(size + 4093, dtype=np.uint64)
        _base = ((index * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(53)).astype(np.uint8)
    return _base[seed : seed + size]


def same(found, wanted, what=""):
    """Asserts that two arrays are equal and says where they are not."""
    assert found.shape == wanted.shape, f"{what}: {found.shape} for {wanted.shape}"
    if not np.array_equal(found, wanted):
        where = int(np.flatnonzero(found.ravel() != wanted.ravel())[0])
        total = int(np.count_nonzero(found != wanted))
        raise AssertionError(
            f"{what}: {total} of {wanted.size} differ, first at {where}: {found.flat[where]} for {wanted.flat[where]}"
        )


def _names(option):
    if option not in sys.argv:
        return []
    return [name for name in sys.argv[sys.argv.index(option) + 1].split(",") if name]


def main():
    only, skip = _names("--only"), _names("--skip")
    chosen = [f for f in _checks if (not only or f.__name__ in only) and f.__name__ not in skip]
    if "--list" in sys.argv:
        print("\n".join(f.__name__ for f in _checks))
        return
    rank = WORLD.rank
    for function in chosen:
        if rank == 0:
            print("begin", function.__name__, flush=True)
        try:
            comm = WORLD.Dup()
            started = time.monotonic()
            function(comm)
            comm.Barrier()
            seconds = time.monotonic() - started
            comm.Free()
        except BaseException:
            print(f"FAILED {function.__name__} on rank {rank}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            WORLD.Abort(1)
        if rank == 0:
            print(f"ok {function.__name__} {seconds:.2f} s", flush=True)
    if rank == 0:
        print("all ok", flush=True)
