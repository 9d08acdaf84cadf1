"""More than any queue was made for: unexpected messages, outstanding receives, floods. Two ranks or more."""

import random

import numpy as np
from checks import check, main, pattern, same
from mpi4py import MPI


@check
def unexpected_10000(comm):
    """10,000 messages wait before the first is received, then are taken in another order."""
    count, senders = 10_000, comm.size - 1
    share = count // senders
    if comm.rank:
        # The order of the tags says when they are received: some at once, the rest backwards.
        requests = [comm.Isend(pattern(16 + k % 400, k), 0, k) for k in range(share)]
        comm.send("sent", 0, 32_700)
        MPI.Request.Waitall(requests)
    else:
        for source in range(1, comm.size):
            assert comm.recv(source=source, tag=32_700) == "sent"
        for source in range(1, comm.size):
            for k in reversed(range(share)):
                buffer = np.zeros(16 + k % 400, np.uint8)
                comm.Recv(buffer, source, k)
                same(buffer, pattern(buffer.size, k), f"message {k} of rank {source}")


@check
def outstanding_5000(comm):
    """5,000 receives are posted, each with its own tag, and served in random order."""
    count = 5000
    if comm.rank == 0:
        buffers = np.zeros((count, 64), np.uint8)
        requests = [comm.Irecv(row, 1, k) for k, row in enumerate(buffers)]
        comm.Barrier()
        MPI.Request.Waitall(requests)
        for k, row in enumerate(buffers):
            same(row, pattern(64, k), f"message {k}")
    else:
        comm.Barrier()
        if comm.rank == 1:
            for k in random.Random(2).sample(range(count), count):
                comm.Send(pattern(64, k), 0, k)


@check
def outstanding_wildcards_5000(comm):
    count = 5000
    if comm.rank == 0:
        values = np.zeros(count, np.int64)
        requests = [comm.Irecv(values[k : k + 1], MPI.ANY_SOURCE, MPI.ANY_TAG) for k in range(count)]
        comm.Barrier()
        MPI.Request.Waitall(requests)
        assert sorted(values.tolist()) == list(range(count))
    else:
        comm.Barrier()
        for k in range(comm.rank - 1, count, comm.size - 1):
            comm.Send(np.array([k], np.int64), 0, k % 100)


@check
def unexpected_large(comm):
    """Messages above every threshold wait unexpected; their memory must stay bounded, their contents right."""
    count, size = 200, 600_000
    if comm.rank == 1:
        data = [pattern(size, k).copy() for k in range(8)]
        requests = [comm.Isend(data[k % 8], 0, k) for k in range(count)]
        comm.send("sent", 0, 32_700)
        MPI.Request.Waitall(requests)
    elif comm.rank == 0:
        assert comm.recv(source=1, tag=32_700) == "sent"
        buffer = np.zeros(size, np.uint8)
        for k in reversed(range(count)):
            buffer[:] = 0
            comm.Recv(buffer, 1, k)
            same(buffer, pattern(size, k % 8), f"message {k}")


@check
def a_slow_receiver_is_not_drowned(comm):
    """Everybody sends to rank 0, which looks only now and then."""
    count = 3000
    if comm.rank:
        for k in range(count):
            comm.Send(pattern(2000, k), 0, 1)
    else:
        buffer = np.zeros(2000, np.uint8)
        seen = [0] * comm.size
        status = MPI.Status()
        for k in range(count * (comm.size - 1)):
            if k % 500 == 0:
                np.sort(np.random.default_rng(k).random(200_000))
            comm.Recv(buffer, MPI.ANY_SOURCE, 1, status)
            same(buffer, pattern(2000, seen[status.source]), f"rank {status.source}")
            seen[status.source] += 1


@check
def everybody_to_everybody(comm):
    """All ranks send 200 mixed messages to all others before they receive anything."""
    count = 200
    others = [rank for rank in range(comm.size) if rank != comm.rank]

    def size(source, target, k):
        return random.Random(source * 1_000_003 + target * 1009 + k).choice([0, 10, 500, 3000, 9000, 70_000])

    requests = [
        comm.Isend(pattern(size(comm.rank, target, k), k + comm.rank), target, k)
        for k in range(count)
        for target in others
    ]
    for k in reversed(range(count)):
        for source in others:
            buffer = np.zeros(size(source, comm.rank, k), np.uint8)
            comm.Recv(buffer, source, k)
            same(buffer, pattern(buffer.size, k + source), f"message {k} of rank {source}")
    MPI.Request.Waitall(requests)


main()
