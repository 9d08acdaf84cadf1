"""Files with maps: `encryption_map.py write|read|view|refused|alone FILE`. Of each 300 bytes, half of every hundred are
a trial's; `view`, `refused` and `alone` are for files that no rule seals."""

from __future__ import annotations

import random
import sys

import gambeson.mpi
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
LENGTH = 200_000
DATA = random.Random(5).randbytes(LENGTH)


def laid(file: MPI.File, filetype: MPI.Datatype, label: str) -> str:
    """How laying a map ended."""
    try:
        gambeson.mpi.set_encryption_map(file, 0, MPI.BYTE, filetype, label, block_size=4096)
    except MPI.Exception as error:
        return f"{error.Get_error_class()} {error.Get_error_string()}"
    return "laid"


def say(text: str) -> None:
    # One write, so that the ranks' lines do not mix.
    sys.stdout.write(f"rank {WORLD.rank} {text}\n")
    sys.stdout.flush()


def write(name: str) -> None:
    assert WORLD.size == 3
    part = MPI.BYTE.Create_hindexed([50], [100 * WORLD.rank])
    filetype = part.Create_resized(0, 300).Commit()
    all_of_it = MPI.BYTE.Create_contiguous(10).Commit()
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    refused, wrong = str(MPI.ERR_ACCESS), str(MPI.ERR_ARG)
    say(f"unknown label: {laid(file, filetype, 'unknown').startswith(refused)}")
    assert laid(file, filetype, "trial") == laid(file, filetype, "trial") == "laid"
    say(f"overlap: {laid(file, all_of_it, 'clinical').startswith(wrong)}")
    share = LENGTH // 4 // WORLD.size
    at = WORLD.rank * share
    file.Write_at_all(at, DATA[at : at + share])
    if WORLD.rank == 0:
        file.Write_at(3 * share, DATA[3 * share :])
    file.Sync()
    say(f"data: {laid(file, filetype, 'clinical').startswith(wrong)}")
    file.Close()
    read(name)


def read(name: str) -> None:
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)
    assert file.Get_size() == LENGTH
    buffer = bytearray(LENGTH)
    try:
        file.Read_at(0, buffer)
        say(f"all: {buffer == DATA}")
    except MPI.Exception as error:
        say(f"refused: {error.Get_error_class() == MPI.ERR_ACCESS} {error.Get_error_string()}")
    # What is not the trial's.
    rest = MPI.BYTE.Create_hindexed([50], [50]).Create_resized(0, 100).Commit()
    file.Set_view(0, MPI.BYTE, rest)
    buffer = bytearray(1000 * 50)
    file.Read_at(0, buffer)
    expected = b"".join(DATA[at + 50 : at + 100] for at in range(0, 100_000, 100))
    say(f"rest: {buffer == expected}")
    file.Close()


def view(name: str) -> None:
    """Two labels, laid when the program has set a view and moved its pointer, on a handle for writing alone."""
    of_rank = MPI.BYTE.Create_hindexed([100], [100 * WORLD.rank])
    of_rank = of_rank.Create_resized(0, 100 * WORLD.size).Commit()
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Set_view(0, MPI.BYTE, of_rank)
    file.Seek(100)
    nothing = MPI.BYTE.Create_contiguous(0).Commit()
    for label, at in (("trial", 0), ("clinical", 25)):
        part = MPI.BYTE.Create_hindexed([25], [at]).Create_resized(0, 100).Commit()
        # All ranks give the same part of the one map, and one rank all of the other.
        assert laid(file, part if label == "trial" or WORLD.rank == 1 else nothing, label) == "laid"
    begin, end = 100 * WORLD.size, 400 * WORLD.size
    mine = b"".join(DATA[at : at + 100] for at in range(begin + 100 * WORLD.rank, end, 100 * WORLD.size))
    file.Write_all(mine)
    assert file.Get_position() == 100 + len(mine)
    file.Close()
    file = MPI.File.Open(WORLD, name, MPI.MODE_RDONLY)
    found = bytearray(end)
    file.Read_at_all(0, found)
    say(f"view: {file.Get_size() == end and found == bytes(begin) + DATA[begin:end]}")
    file.Close()


def refused(name: str) -> None:
    """What lays no map leaves a file in clear as it was."""
    part = MPI.BYTE.Create_contiguous(10).Commit()
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    say(f"unknown label: {laid(file, part, 'unknown').startswith(str(MPI.ERR_ACCESS))}")
    say(f"wrong at one: {laid(file, part, 'trial' if WORLD.rank == 1 else '') != 'laid'}")
    file.Write_at_all(1000 * WORLD.rank, DATA[:1000])
    said = laid(file, part, "trial")
    say(f"data: {said.startswith(str(MPI.ERR_ARG)) and 'gambeson file seal' in said}")
    file.Close()
    for said, mode, error in (
        ("reading", MPI.MODE_RDONLY, MPI.ERR_READ_ONLY),
        ("sequential", MPI.MODE_WRONLY | MPI.MODE_SEQUENTIAL, MPI.ERR_UNSUPPORTED_OPERATION),
    ):
        file = MPI.File.Open(WORLD, name, mode)
        say(f"{said}: {laid(file, part, 'trial').startswith(f'{error} ')}")
        file.Close()


def alone(name: str) -> None:
    """Started without Gambeson."""
    file = MPI.File.Open(WORLD, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
    try:
        laid(file, MPI.BYTE, "trial")
    except RuntimeError as error:
        say(f"alone: {'gambeson run' in str(error)}")
    file.Close()


actions = {"write": write, "read": read, "view": view, "refused": refused, "alone": alone}
actions[sys.argv[1]](sys.argv[2])
