"""What a program with files does: writes with all ranks, reads as other ranks, and says what went wrong.

files.py write FILE      each rank writes a strip by itself, then all write interleaved records together
files.py own FILE        all write interleaved records together, and each reads its own at once, some rounds
files.py beside FILE     each rank writes small records by itself between those of others; all are read at the end
files.py gaps FILE       all write records that are far apart together, and read what lies between them
files.py handles FILE    writes by one handle of all ranks and by one of each rank's own, and closes them in any order
files.py read FILE       each rank reads another's strip, and its own records
files.py killed FILE     writes zeros over the first strip, and dies before it closes the file
files.py refused FILE    opens and reads; each rank prints the class and the sentence of the first error
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
STRIP = 100_003
RECORD = 10
RECORDS = 5_000


def say(text: str) -> None:
    # One write, so that the ranks' lines do not mix.
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def strip(rank: int) -> np.ndarray:
    return np.arange(STRIP, dtype=np.int32) * 7 + rank


def records(rank: int) -> np.ndarray:
    return np.arange(RECORD * RECORDS, dtype=np.int32) * 3 + 1_000_000 * rank


def interleaved(file: MPI.File) -> MPI.Datatype:
    """Sets a view of every rank's own records behind the strips."""
    kind = MPI.INT32_T.Create_vector(RECORDS, RECORD, RECORD * WORLD.size).Commit()
    file.Set_view(4 * STRIP * WORLD.size + 4 * RECORD * WORLD.rank, MPI.INT32_T, kind)
    return kind


def write(name: str) -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Write_at(4 * STRIP * WORLD.rank, b"canary: patient 0815" + strip(WORLD.rank).tobytes()[20:])
    kind = interleaved(file)
    file.Write_all(records(WORLD.rank))
    file.Sync()
    got = np.zeros(RECORD * RECORDS, dtype=np.int32)
    file.Read_at_all(0, got)
    assert (got == records(WORLD.rank)).all()
    file.Close()
    kind.Free()


def beside(name: str) -> None:
    """Blocks that all ranks write to at once, each for itself."""
    size, count = 1_000, 300
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    for number in range(count):
        place = number * WORLD.size + WORLD.rank
        file.Write_at(size * place, bytes([place % 251]) * size)
    file.Sync()
    WORLD.Barrier()
    file.Sync()
    got = bytearray(size * count * WORLD.size)
    file.Read_at(0, got)
    wrong = [place for place in range(count * WORLD.size) if got[size * place :][:size] != bytes([place % 251]) * size]
    assert not wrong, f"{len(wrong)} records are not as they were written, the first is {wrong[0]}"
    file.Close()


def killed(name: str) -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDWR)
    if WORLD.rank == 0:
        file.Write_at(0, np.zeros(STRIP, dtype=np.int32))
    WORLD.Barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def own(name: str) -> None:
    """What a rank has written it sees before any sync (MPI-4.1 section 14.6.1)."""
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    kind = interleaved(file)
    for number in range(20):
        mine = records(WORLD.rank) + number
        file.Write_at_all(0, mine)
        got = np.zeros_like(mine)
        file.Read_at(0, got)
        assert WORLD.allreduce(bool((got == mine).all()), MPI.LAND), f"round {number}"
    file.Close()
    kind.Free()


def gaps(name: str) -> None:
    """What nobody has written is empty, whatever the library does between the records."""
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    # Gaps of whole blocks, and buffers that are not empty any more when the file grows again.
    length, count = 30_000, 4
    kind = MPI.INT32_T.Create_vector(count, length, 2 * length * WORLD.size).Commit()
    whole = 8 * length * WORLD.size * count
    for number in range(4):
        file.Set_view(number * whole + 8 * length * WORLD.rank, MPI.INT32_T, kind)
        file.Write_all(np.full(count * length, 7, dtype=np.int32))
    file.Set_view()
    file.Sync()
    got = np.full(file.Get_size() // 4, 1, dtype=np.int32)
    file.Read_at(0, got)
    assert WORLD.allreduce(bool((got[: length * (len(got) // length)].reshape(-1, length)[1::2] == 0).all()), MPI.LAND)
    file.Close()
    kind.Free()


def handles(name: str) -> None:
    """As PnetCDF does: its independent access goes by handles of MPI_COMM_SELF."""
    rank, size = WORLD.rank, WORLD.size
    everybody = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    for round in range(3):
        at = 1000 * round + 10 * rank
        everybody.Write_at_all(at, bytes([1 + rank]) * 10)
        # The others may be done with theirs before the last one opens its own.
        own = MPI.File.Open(MPI.COMM_SELF, name, MPI.MODE_RDWR)
        own.Write_at(at + 200, bytes([101 + rank]) * 10)
        if round == 2:
            WORLD.Barrier()
            everybody.Write_at_all(at + 400, bytes([201 + rank]) * 10)
        own.Close()
        if round == 1:
            everybody.Sync()
    everybody.Close()
    for communicator in (WORLD, MPI.COMM_SELF):
        file = MPI.File.Open(communicator, name, MPI.MODE_RDONLY)
        for round in range(3):
            for part in range(3 if round == 2 else 2):
                got = bytearray(10 * size)
                file.Read_at(1000 * round + 200 * part, got)
                expected = b"".join(bytes([100 * part + 1 + other]) * 10 for other in range(size))
                assert got == expected, (round, part, got)
        file.Close()


def read(name: str) -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)
    assert file.Get_size() == 4 * (STRIP + RECORD * RECORDS) * WORLD.size
    other = (WORLD.rank + 1) % WORLD.size
    got = np.zeros(STRIP, dtype=np.int32)
    file.Read_at(4 * STRIP * other, got)
    assert (got[5:] == strip(other)[5:]).all() and got.tobytes()[:20] == b"canary: patient 0815"
    kind = interleaved(file)
    got = np.zeros(RECORD * RECORDS, dtype=np.int32)
    file.Read_all(got)
    assert (got == records(WORLD.rank)).all()
    file.Close()
    kind.Free()


def refused(name: str) -> None:
    try:
        file = MPI.File.Open(WORLD, name, MPI.MODE_RDWR if "write" in sys.argv else MPI.MODE_RDONLY)
        got = np.ones(STRIP, dtype=np.int32)
        status = MPI.Status()
        try:
            file.Read_at(4 * STRIP * WORLD.rank, got, status)
            say(f"rank {WORLD.rank} read {got.tobytes()[:20]!r}")
        finally:
            WORLD.Barrier()
    except MPI.Exception as error:
        say(
            f"rank {WORLD.rank} class {error.Get_error_class() == MPI.ERR_ACCESS} {error.Get_error_string()}",
        )


if __name__ == "__main__":
    actions = [write, own, beside, handles, gaps, killed, read, refused]
    {action.__name__: action for action in actions}[sys.argv[1]](sys.argv[2])
    if WORLD.rank == 0:
        print("done")
