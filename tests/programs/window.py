"""Puts a value into the neighbour's window and reads what arrived in its own."""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
memory = numpy.zeros(1, dtype="i8")
window = MPI.Win.Create(memory, comm=world)
window.Fence()
window.Put(numpy.array([world.rank + 1], dtype="i8"), (world.rank + 1) % world.size)
window.Fence()
print(f"rank {world.rank} found {memory[0]}", flush=True)
window.Free()
