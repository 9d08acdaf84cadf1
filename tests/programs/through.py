"""Reads standard input on rank 0, writes to both outputs, and ends with the status given as argument."""

import sys

from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
if rank == 0:
    # Lines, not all there is: Open MPI 5 passes no end of file on.
    print("rank 0 read:", "|".join(sys.stdin.readline().rstrip() for _ in range(2)), flush=True)
print(f"rank {rank} to stderr", file=sys.stderr, flush=True)
MPI.COMM_WORLD.Barrier()
MPI.Finalize()
sys.exit(int(sys.argv[1]))
