"""Files through all that makes, measures and removes them.

detached_files.py holes FILE     whole blocks with gaps between them, sizes set and cut; the length on disk after each
detached_files.py modes FILE     made, made again, appended to, deleted on close, and deleted; who says what
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
BLOCK = 64 << 10


def say(text: str) -> None:
    # One write, so that the ranks' lines do not mix.
    sys.stdout.write(f"rank {WORLD.rank} {text}\n")
    sys.stdout.flush()


def lengths(what: str, file: MPI.File, name: str) -> None:
    file.Sync()
    WORLD.Barrier()
    say(f"{what}: {file.Get_size()} {Path(name).stat().st_size}")
    WORLD.Barrier()


def holes(name: str) -> None:
    hints = MPI.Info.Create({"striping_factor": "2", "striping_unit": "1048576"})
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR, hints)
    for number in range(0, 40, 10):
        file.Write_at_all((number + WORLD.rank) * BLOCK, bytes([number + 1]) * BLOCK)
    lengths("gaps", file, name)
    # A part of a block, by one rank and by all of them.
    if WORLD.rank == 0:
        file.Write_at(50 * BLOCK, b"x" * 1000)
    lengths("alone", file, name)
    file.Write_at_all(60 * BLOCK + 100 * WORLD.rank, b"y" * 100)
    lengths("together", file, name)
    for size in (100 * BLOCK + 7, 60 * BLOCK + 150, 50 * BLOCK, 10 * BLOCK + 5, 0, 12345):
        file.Set_size(size)
        lengths("size", file, name)
    file.Preallocate(20 * BLOCK + 1)
    lengths("preallocated", file, name)
    file.Set_size(0)
    for number in range(0, 40, 10):
        file.Write_at_all((number + WORLD.rank) * BLOCK, bytes([number + 1]) * BLOCK)
    file.Close()


def tried(what: str, act: Callable[[], object]) -> None:
    try:
        act()
        say(f"{what}: done")
    except MPI.Exception as error:
        say(f"{what}: refused {error.Get_error_string()}")


def modes(name: str) -> None:
    new = MPI.MODE_CREATE | MPI.MODE_EXCL | MPI.MODE_WRONLY
    there = lambda: sorted(path.name for path in Path(name).parent.glob(f"{Path(name).name}*"))  # noqa: E731

    def written(mode: int) -> None:
        file = MPI.File.Open(WORLD, name, mode)
        file.Write_ordered(b"0123456789")
        file.Close()

    tried("new", lambda: written(new))
    tried("again", lambda: written(new))
    tried("appended", lambda: written(MPI.MODE_WRONLY | MPI.MODE_APPEND))
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)
    found = bytearray(100)
    status = MPI.Status()
    file.Read_at_all(0, found, status)
    count = status.Get_count(MPI.BYTE)
    say(f"found: {found[:count] == b'0123456789' * 2 * WORLD.size}")
    file.Close()
    WORLD.Barrier()
    say(f"closed: {' '.join(there())}")
    WORLD.Barrier()
    if WORLD.rank == 0:
        MPI.File.Delete(name)
    WORLD.Barrier()
    say(f"deleted: {there()}")
    WORLD.Barrier()
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR | MPI.MODE_DELETE_ON_CLOSE)
    file.Write_at_all(BLOCK * WORLD.rank, b"x" * BLOCK)
    file.Close()
    WORLD.Barrier()
    say(f"on close: {there()}")


if __name__ == "__main__":
    {"holes": holes, "modes": modes}[sys.argv[1]](sys.argv[2])
