"""A file with a map: `encryption_map.py write|read FILE`. Of each 300 bytes, half of every hundred are a trial's."""

from __future__ import annotations

import sys

import gambeson.mpi
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
LENGTH = 200_000
DATA = bytes((i * 7 + i // 251) % 256 for i in range(LENGTH))


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


{"write": write, "read": read}[sys.argv[1]](sys.argv[2])
