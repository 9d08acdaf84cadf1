"""Sends messages of known sizes round a ring: the size tells which. `wait` computes in between, `kill` ends rank 1."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size


def exchange(size: int, tag: int) -> None:
    sent, got = np.full(size, world.rank, "u1"), np.empty(size, "u1")
    request = world.Irecv(got, left, tag=tag)
    world.Send(sent, right, tag=tag)
    request.Wait()
    assert (got == left).all()


for number in range(20):
    exchange(4000 + number, number)
    if "wait" in sys.argv:
        until = time.thread_time_ns() + 5_000_000
        while time.thread_time_ns() < until:
            pass
# Two that overtake each other: the second has its receive first.
late, early = np.empty(5001, "u1"), np.empty(5002, "u1")
requests = [world.Isend(np.zeros(5001, "u1"), right, tag=51), world.Isend(np.zeros(5002, "u1"), right, tag=52)]
world.Recv(early, left, tag=52)
world.Recv(late, left, tag=51)
MPI.Request.Waitall(requests)
# One that waits for its receiver's grant, and one inside a collective.
exchange(300_001, 99)
if "kill" in sys.argv and world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
world.Bcast(np.zeros(777, "u1"), 0)
world.Barrier()
