"""Partitioned communication (MPI 4). Two ranks."""

import numpy as np
from checks import check, main, pattern, same
from mpi4py import MPI


@check
def partitions(comm):
    for size, parts in ((8, 1), (4096, 4), (1_000_000, 10)):
        each = size // parts
        if comm.rank == 0:
            data = np.zeros(size, np.uint8)
            request = comm.Psend_init([data, each, MPI.BYTE], parts, 1, 3)
            for turn in range(3):
                data[:] = pattern(size, turn)
                request.Start()
                for part in reversed(range(parts)):
                    request.Pready(part)
                request.Wait()
        else:
            data = np.zeros(size, np.uint8)
            request = comm.Precv_init([data, each, MPI.BYTE], parts, 0, 3)
            for turn in range(3):
                request.Start()
                while not all(request.Parrived(part) for part in range(parts)):
                    pass
                request.Wait()
                same(data, pattern(size, turn), f"{size} bytes, turn {turn}")
        request.Free()
        comm.Barrier()


main()
