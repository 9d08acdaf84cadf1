"""Many more ranks than cores: rings, collectives, everybody to everybody in small."""

import numpy as np
from checks import check, main, pattern, same
from mpi4py import MPI


@check
def ring(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in (8, 5000, 100_000):
        buffer = np.zeros(size, np.uint8)
        comm.Sendrecv(pattern(size, comm.rank), right, 1, buffer, left, 1)
        same(buffer, pattern(size, left))


@check
def collectives(comm):
    for _ in range(2):
        assert comm.allreduce(comm.rank) == comm.size * (comm.size - 1) // 2
        found = np.zeros(comm.size, np.int64)
        comm.Alltoall(np.arange(comm.size, dtype=np.int64) + 1000 * comm.rank, found)
        assert (found == 1000 * np.arange(comm.size) + comm.rank).all()
        comm.Barrier()


@check
def everybody_to_one(comm):
    if comm.rank:
        comm.send(("hello", comm.rank), 0, comm.rank)
    else:
        status = MPI.Status()
        senders = set()
        for _ in range(comm.size - 1):
            message = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
            assert message == ("hello", status.source) and status.tag == status.source
            senders.add(status.source)
        assert len(senders) == comm.size - 1


main()
