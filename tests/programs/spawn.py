"""Starts two more processes while running and talks to them; they run this file too."""

import os
import sys

import mpi4py

mpi4py.rc.recv_mprobe = "CHECKS_WITHOUT_MPROBE" not in os.environ
from mpi4py import MPI  # after the choice

if "--child" in sys.argv:
    parent = MPI.Comm.Get_parent()
    merged = parent.Merge(True)
    assert merged.allreduce(1) == merged.size
    for size in (1, 5000, 300_000):
        data = bytearray(b"x" * size) if merged.rank == 0 else bytearray(size)
        merged.Bcast(data, 0)
        assert data == b"x" * size
    parent.send(("child", merged.rank), 0, 5)
    merged.Free()
    parent.Disconnect()
else:
    world = MPI.COMM_WORLD
    children = world.Spawn(sys.executable, [__file__, "--child"], 2)
    merged = children.Merge(False)
    assert merged.allreduce(1) == world.size + 2
    for size in (1, 5000, 300_000):
        data = bytearray(b"x" * size) if merged.rank == 0 else bytearray(size)
        merged.Bcast(data, 0)
        assert data == b"x" * size
    if world.rank == 0:
        assert sorted(children.recv(source=k, tag=5)[0] for k in range(2)) == ["child", "child"]
    merged.Free()
    children.Disconnect()
    world.Barrier()
    if world.rank == 0:
        print("all ok", flush=True)
