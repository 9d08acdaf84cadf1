"""Rank 1 is killed while rank 0 waits for a message of it."""

import os
import signal

from mpi4py import MPI

world = MPI.COMM_WORLD
world.allreduce(1)
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
world.recv(source=1)
