"""MPI_THREAD_MULTIPLE with four threads in every rank. Two ranks or more."""

import os
import threading

os.environ["CHECKS_THREADS"] = "1"
import numpy as np
from checks import check, main, pattern, same  # the environment decides the thread level
from mpi4py import MPI

THREADS = 4


def with_threads(work):
    """Runs work(0..3) at once; a failure in one fails the check."""
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)
            # The peers of a thread that gave up would wait for ever.
            print(f"thread {number}: {failure!r}", flush=True)
            MPI.COMM_WORLD.Abort(1)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@check
def level(comm):
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE, "this MPI does not grant MPI_THREAD_MULTIPLE"


@check
def one_communicator_by_tags(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def work(thread):
        for turn in range(150):
            size = (0, 8, 700, 5000, 70_000, 300_000)[(turn + thread) % 6]
            buffer = np.zeros(size, np.uint8)
            request = comm.Irecv(buffer, left, thread)
            comm.Send(pattern(size, turn + thread + comm.rank), right, thread)
            request.Wait()
            same(buffer, pattern(size, turn + thread + left), f"thread {thread}, turn {turn}")

    with_threads(work)


@check
def a_communicator_per_thread(comm):
    comms = [comm.Dup() for _ in range(THREADS)]

    def work(thread):
        own = comms[thread]
        for turn in range(60):
            assert own.allreduce(turn + own.rank) == turn * own.size + sum(range(own.size))
            data = pattern(20_000, turn + thread).copy() if own.rank == 0 else np.zeros(20_000, np.uint8)
            own.Bcast(data)
            same(data, pattern(20_000, turn + thread))

    with_threads(work)
    for own in comms:
        own.Free()


@check
def wildcards_between_threads(comm):
    """Four threads of rank 0 take what comes: every message once, and each thread sees each source in order."""
    count = 1200
    if comm.rank == 0:
        taken = [[] for _ in range(THREADS)]
        total = count * (comm.size - 1)

        def work(thread):
            for _ in range(total // THREADS):
                value = np.zeros(2, np.int64)
                comm.Recv(value, MPI.ANY_SOURCE, MPI.ANY_TAG)
                taken[thread].append(tuple(value.tolist()))

        with_threads(work)
        for of_thread in taken:
            for source in range(1, comm.size):
                numbers = [number for rank, number in of_thread if rank == source]
                assert numbers == sorted(numbers), f"rank {source} out of order"
        wanted = sorted((source, k) for source in range(1, comm.size) for k in range(count))
        assert sorted(pair for of_thread in taken for pair in of_thread) == wanted
    else:
        for k in range(count):
            comm.Send(np.array([comm.rank, k], np.int64), 0, k % 50)


@check
def probes_between_threads(comm):
    """Matched probes exist so that threads don't steal each other's messages."""
    count = 200
    if comm.rank == 0:
        total = count * (comm.size - 1)

        def work(thread):
            for _ in range(total // THREADS):
                status = MPI.Status()
                message = comm.Mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
                buffer = np.zeros(status.Get_count(MPI.BYTE), np.uint8)
                message.Recv(buffer)
                same(buffer, pattern(buffer.size, status.tag))

        with_threads(work)
    else:
        for k in range(count):
            comm.Send(pattern((k * 37) % 9000, k), 0, k)


main()
