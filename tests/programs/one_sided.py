"""One-sided communication: put, get, accumulate, atomics, under every kind of synchronisation. Any number of ranks.

What a put or an accumulate sends has a name here until the synchronisation: mpi4py keeps no reference to it.
"""

import numpy as np
from checks import check, main
from mpi4py import MPI


def window(comm, count, fill=0):
    win = MPI.Win.Allocate(8 * count, 8, comm=comm)
    memory = np.frombuffer(win.tomemory(), np.int64)
    memory[:] = fill
    comm.Barrier()
    return win, memory


def read(win, memory, comm):
    """This rank's own window memory, as the others left it; for windows that are not fenced."""
    win.Lock(comm.rank)
    copy = memory.copy()
    win.Unlock(comm.rank)
    return copy


@check
def fence_put_get(comm):
    for count in (1, 500, 9000, 100_000):
        win, memory = window(comm, count)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        outgoing = np.arange(count, dtype=np.int64) + comm.rank
        win.Fence()
        win.Put(outgoing, right)
        win.Fence()
        assert (memory == np.arange(count) + left).all(), f"put {count}"
        found = np.zeros(count, np.int64)
        win.Fence()
        win.Get(found, right)
        win.Fence()
        assert (found == np.arange(count) + comm.rank).all(), f"get {count}"
        win.Free()


@check
def accumulate(comm):
    for count in (1, 700, 50_000):
        win, memory = window(comm, count, fill=comm.rank)
        outgoing = np.full(count, comm.rank + 1, np.int64)
        win.Fence()
        for target in range(comm.size):
            win.Accumulate(outgoing, target, op=MPI.SUM)
        win.Fence()
        assert (memory == comm.rank + sum(range(comm.size + 1))).all(), f"{count}"
        win.Free()


@check
def start_post_complete_wait(comm):
    win, memory = window(comm, 4000)
    group = comm.Get_group()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for turn in range(10):
        win.Post(group.Incl([left]))
        win.Start(group.Incl([right]))
        outgoing = np.full(4000, turn * 100 + comm.rank, np.int64)
        win.Put(outgoing, right)
        win.Complete()
        win.Wait()
        assert (memory == turn * 100 + left).all(), f"turn {turn}"
        comm.Barrier()
    win.Free()


@check
def locks(comm):
    win, memory = window(comm, 3000)
    ones = np.ones(3000, np.int64)
    for _ in range(10):
        for target in range(comm.size):
            win.Lock(target, MPI.LOCK_EXCLUSIVE)
            win.Accumulate(ones, target, op=MPI.SUM)
            win.Unlock(target)
    comm.Barrier()
    assert (read(win, memory, comm) == 10 * comm.size).all()
    comm.Barrier()
    win.Free()


@check
def flush_and_requests(comm):
    win, _ = window(comm, 8000)
    right = (comm.rank + 1) % comm.size
    win.Lock_all()
    for turn in range(5):
        outgoing = np.full(8000, turn + comm.rank, np.int64)
        win.Put(outgoing, right)
        win.Flush(right)
        found = np.zeros(8000, np.int64)
        win.Rget(found, right).Wait()
        assert (found == turn + comm.rank).all(), f"turn {turn}"
        ones = np.ones(8000, np.int64)
        win.Raccumulate(ones, right, op=MPI.SUM).Wait()
        win.Flush_all()
        win.Get(found, right)
        win.Flush(right)
        assert (found == turn + comm.rank + 1).all(), f"turn {turn}, accumulated"
    win.Unlock_all()
    comm.Barrier()
    win.Free()


@check
def atomics(comm):
    win, _ = window(comm, 2)
    one, seen = np.ones(1, np.int64), np.zeros(1, np.int64)
    tickets = []
    win.Lock_all()
    for _ in range(100):
        win.Fetch_and_op(one, seen, 0, 0, MPI.SUM)
        win.Flush(0)
        tickets.append(int(seen[0]))
    assert tickets == sorted(tickets)
    everybody = sorted(ticket for of_rank in comm.allgather(tickets) for ticket in of_rank)
    assert everybody == list(range(100 * comm.size)), "a ticket was given twice or lost"
    # Exactly one rank finds the second cell empty.
    mine, empty = np.array([comm.rank + 1], np.int64), np.zeros(1, np.int64)
    win.Compare_and_swap(mine, empty, seen, 0, 1)
    win.Flush(0)
    assert comm.allreduce(int(seen[0] == 0)) == 1
    win.Unlock_all()
    comm.Barrier()
    win.Free()


@check
def get_accumulate(comm):
    win, _ = window(comm, 20_000, fill=5)
    found, ones = np.zeros(20_000, np.int64), np.ones(20_000, np.int64)
    for rank in range(comm.size):
        if comm.rank == rank:
            win.Lock(0, MPI.LOCK_EXCLUSIVE)
            win.Get_accumulate(ones, found, 0, op=MPI.SUM)
            win.Unlock(0)
            assert (found == 5 + rank).all()
        comm.Barrier()
    win.Free()


@check
def strided_put(comm):
    win, memory = window(comm, 10_000)
    datatype = MPI.INT64_T.Create_vector(1000, 3, 10).Commit()
    outgoing = np.arange(3000, dtype=np.int64)
    win.Fence()
    win.Put([outgoing, 3000, MPI.INT64_T], (comm.rank + 1) % comm.size, (0, 1, datatype))
    win.Fence()
    assert (memory.reshape(1000, 10)[:, :3].ravel() == np.arange(3000)).all()
    assert not memory.reshape(1000, 10)[:, 3:].any()
    datatype.Free()
    win.Free()


@check
def dynamic_windows(comm):
    win = MPI.Win.Create_dynamic(comm=comm)
    memory = np.zeros(1000, np.int64)
    win.Attach(memory)
    places = comm.allgather(MPI.Get_address(memory))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    outgoing = np.full(1000, comm.rank, np.int64)
    win.Fence()
    win.Put(outgoing, right, (places[right], 8000, MPI.BYTE))
    win.Fence()
    assert (memory == left).all()
    win.Detach(memory)
    win.Free()


main()
