"""What a program meets whose files fail: each rank says the class and the sentence of every error.

file_failures.py full FILE             writes what there is room for, and then what there is none for
file_failures.py reading FILE          opens for writing, then for reading, and tries to write
file_failures.py open FILE             makes the file or opens it, and reads
file_failures.py gone FILE OTHER STORE [GAMBESON]
                                       writes FILE while the key store goes away, or is locked, then makes OTHER
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
# Whole blocks, so that a write that fails costs none that was written before.
PART = 512 << 10
NAMES = {
    getattr(MPI, name): name.removeprefix("ERR_")
    for name in ("ERR_ACCESS", "ERR_NO_SPACE", "ERR_READ_ONLY", "ERR_IO", "ERR_OTHER")
}


def say(text: str) -> None:
    # One write, so that the ranks' lines do not mix.
    sys.stdout.write(f"rank {WORLD.rank} {text}\n")
    sys.stdout.flush()


def tried(what: str, act: Callable[[], object]) -> None:
    try:
        act()
        say(f"{what}: done")
    except MPI.Exception as error:
        say(f"{what}: {NAMES.get(error.Get_error_class(), error.Get_error_class())} {error.Get_error_string()}")


def data(rank: int) -> bytes:
    return bytes([rank + 1]) * PART


def check(file: MPI.File) -> None:
    other = (WORLD.rank + 1) % WORLD.size
    found = bytearray(PART)
    file.Read_at(PART * other, found)
    assert found == data(other)


def full(name: str) -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Write_at_all(PART * WORLD.rank, data(WORLD.rank))
    file.Sync()
    behind = PART * WORLD.size
    tried("collective", lambda: file.Write_at_all(behind + 8 * PART * WORLD.rank, data(WORLD.rank) * 8))
    WORLD.Barrier()
    tried("alone", lambda: file.Write_at(behind + 8 * PART * WORLD.rank, data(WORLD.rank) * 8))
    WORLD.Barrier()
    tried("read", lambda: check(file))
    tried("close", file.Close)


def reading(name: str) -> None:
    tried("open", lambda: MPI.File.Open(WORLD, name, MPI.MODE_RDWR).Close())
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)
    tried("write", lambda: file.Write_at(0, b"x"))
    tried("read", lambda: check(file))
    file.Close()


def gone(name: str, other: str, store: str, gambeson: str = "") -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Write_at_all(PART * WORLD.rank, data(WORLD.rank))
    WORLD.Barrier()
    if WORLD.rank == 0 and gambeson:
        subprocess.run([gambeson, "key", "lock"], env={"GAMBESON_KEYS": store}, check=True)
    elif WORLD.rank == 0:
        Path(store).rename(f"{store}.away")
    WORLD.Barrier()
    tried("write", lambda: file.Write_at_all(PART * (WORLD.rank + WORLD.size), data(WORLD.rank)))
    tried("sync", file.Sync)
    tried("read", lambda: check(file))
    tried("close", file.Close)
    tried("open", lambda: MPI.File.Open(WORLD, other, MPI.MODE_CREATE | MPI.MODE_RDWR).Close())


def open_(name: str) -> None:
    tried("write", lambda: MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR).Close())
    tried("read", lambda: check(MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)))


{"full": full, "reading": reading, "gone": gone, "open": open_}[sys.argv[1]](*sys.argv[2:])
