"""Starts MPI through mpi4py, which loads its MPI library for itself alone, and says so."""

from mpi4py import MPI

print(f"rank {MPI.COMM_WORLD.rank} started", flush=True)
