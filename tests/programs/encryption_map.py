"""A file with a map: `encryption_map.py write|read FILE`. Of each 300 bytes, half of every hundred are a trial's."""

from __future__ import annotations

import ctypes
import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
LENGTH = 200_000
DATA = bytes((i * 7 + i // 251) % 256 for i in range(LENGTH))


def handle(of: MPI.Datatype | MPI.File) -> ctypes.c_void_p:
    return ctypes.c_void_p(MPI._handleof(of))


def set_map(file: MPI.File, filetype: MPI.Datatype, label: str, block_size: int = 0) -> int:
    function = ctypes.CDLL(None).MPIX_File_set_encryption_map
    return int(
        function(
            handle(file),
            ctypes.c_int64(0),
            handle(MPI.BYTE),
            handle(filetype),
            b"native",
            label.encode(),
            None,
            block_size,
            handle(MPI.INFO_NULL),
        )
    )


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
    status = set_map(file, filetype, "unknown")
    say(f"unknown label: {MPI.Get_error_class(status) == MPI.ERR_ACCESS} {MPI.Get_error_string(status)}")
    assert set_map(file, filetype, "trial", 4096) == 0
    assert set_map(file, filetype, "trial", 4096) == 0
    status = set_map(file, all_of_it, "clinical", 4096)
    say(f"overlap: {MPI.Get_error_class(status) == MPI.ERR_ARG} {MPI.Get_error_string(status)}")
    share = LENGTH // 4 // WORLD.size
    at = WORLD.rank * share
    file.Write_at_all(at, DATA[at : at + share])
    if WORLD.rank == 0:
        file.Write_at(3 * share, DATA[3 * share :])
    file.Sync()
    status = set_map(file, filetype, "clinical", 4096)
    say(f"data: {MPI.Get_error_class(status) == MPI.ERR_ARG} {MPI.Get_error_string(status)}")
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
