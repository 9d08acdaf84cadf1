"""Every collective operation: blocking, nonblocking, persistent where the MPI has it. Any number of ranks."""

import numpy as np
from checks import check, main, pattern, same
from mpi4py import MPI

COUNTS = (0, 1, 3, 500, 9000, 70_000, 200_000)


def ranked(count, rank):
    return np.arange(count, dtype=np.int64) * 3 + 1000 * rank


@check
def barrier(comm):
    for _ in range(50):
        comm.Barrier()


@check
def bcast(comm):
    for count in COUNTS:
        for root in {0, comm.size - 1}:
            data = ranked(count, root) if comm.rank == root else np.zeros(count, np.int64)
            comm.Bcast(data, root)
            same(data, ranked(count, root), f"{count}")
    assert comm.bcast({"a": 1} if comm.rank == 0 else None) == {"a": 1}


@check
def reduce_and_allreduce(comm):
    for count in COUNTS:
        mine = ranked(count, comm.rank)
        total = sum((ranked(count, rank) for rank in range(comm.size)), np.zeros(count, np.int64))
        found = np.zeros(count, np.int64)
        comm.Allreduce(mine, found)
        same(found, total, f"allreduce {count}")
        for root in {0, comm.size - 1}:
            found = np.zeros(count, np.int64)
            comm.Reduce(mine, found, root=root)
            if comm.rank == root:
                same(found, total, f"reduce {count}")
        comm.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
        same(mine, ranked(count, comm.size - 1), f"max {count}")
    assert comm.allreduce([comm.rank]) == list(range(comm.size))


@check
def own_operations(comm):
    def worse(a, b, _datatype):
        left, right = np.frombuffer(a, np.int64), np.frombuffer(b, np.int64)
        right[:] = left * 2 + right

    operation = MPI.Op.Create(worse, commute=False)
    mine = np.array([comm.rank + 1] * 5, np.int64)
    found = np.zeros(5, np.int64)
    comm.Allreduce(mine, found, operation)
    wanted = 1
    for rank in range(1, comm.size):
        wanted = wanted * 2 + rank + 1
    if comm.size <= 2:
        assert (found == wanted).all(), (found, wanted)
    operation.Free()


@check
def gather_and_scatter(comm):
    for count in COUNTS[1:]:
        everything = np.concatenate([ranked(count, rank) for rank in range(comm.size)])
        for root in {0, comm.size - 1}:
            found = np.zeros(everything.size if comm.rank == root else 0, np.int64)
            comm.Gather(ranked(count, comm.rank), found, root)
            if comm.rank == root:
                same(found, everything, f"gather {count}")
            mine = np.zeros(count, np.int64)
            comm.Scatter(everything if comm.rank == root else None, mine, root)
            same(mine, ranked(count, comm.rank), f"scatter {count}")
        found = np.zeros(everything.size, np.int64)
        comm.Allgather(ranked(count, comm.rank), found)
        same(found, everything, f"allgather {count}")


@check
def uneven_gather_and_scatter(comm):
    for unit in (1, 1000, 30_000):
        counts = [unit * rank for rank in range(comm.size)]
        everything = np.concatenate([ranked(count, rank) for rank, count in enumerate(counts)])
        mine = ranked(counts[comm.rank], comm.rank)
        found = np.zeros(everything.size, np.int64)
        comm.Allgatherv(mine, [found, counts])
        same(found, everything, f"allgatherv {unit}")
        found[:] = 0
        comm.Gatherv(mine, [found, counts] if comm.rank == 0 else None)
        if comm.rank == 0:
            same(found, everything, f"gatherv {unit}")
        back = np.zeros(counts[comm.rank], np.int64)
        comm.Scatterv([everything, counts] if comm.rank == 0 else None, back)
        same(back, mine, f"scatterv {unit}")


@check
def alltoall(comm):
    for count in COUNTS[1:-1]:
        mine = np.concatenate([ranked(count, 10 * comm.rank + rank) for rank in range(comm.size)])
        wanted = np.concatenate([ranked(count, 10 * rank + comm.rank) for rank in range(comm.size)])
        found = np.zeros_like(mine)
        comm.Alltoall(mine, found)
        same(found, wanted, f"alltoall {count}")
        request = comm.Ialltoall(mine, found_later := np.zeros_like(mine))
        request.Wait()
        same(found_later, wanted, f"ialltoall {count}")


@check
def alltoallv(comm):
    for unit in (1, 700, 20_000):
        out = [unit * (comm.rank + rank) for rank in range(comm.size)]
        mine = np.concatenate([ranked(count, 10 * comm.rank + rank) for rank, count in enumerate(out)])
        wanted = np.concatenate([ranked(unit * (rank + comm.rank), 10 * rank + comm.rank) for rank in range(comm.size)])
        found = np.zeros_like(wanted)
        comm.Alltoallv([mine, out], [found, out])
        same(found, wanted, f"alltoallv {unit}")


@check
def alltoallw(comm):
    count = 3000
    mine = np.concatenate([ranked(count, 10 * comm.rank + rank) for rank in range(comm.size)])
    found = np.zeros_like(mine)
    places = [8 * count * rank for rank in range(comm.size)]
    layout = ([count] * comm.size, places), [MPI.INT64_T] * comm.size
    comm.Alltoallw([mine, *layout], [found, *layout])
    same(found, np.concatenate([ranked(count, 10 * rank + comm.rank) for rank in range(comm.size)]))


@check
def scans(comm):
    for count in COUNTS:
        found = np.zeros(count, np.int64)
        comm.Scan(ranked(count, comm.rank), found)
        total = sum((ranked(count, rank) for rank in range(comm.rank + 1)), np.zeros(count, np.int64))
        same(found, total, f"scan {count}")
        comm.Exscan(ranked(count, comm.rank), found)
        if comm.rank:
            same(found, total - ranked(count, comm.rank), f"exscan {count}")


@check
def reduce_scatter(comm):
    for count in COUNTS[1:-1]:
        mine = np.concatenate([ranked(count, comm.rank + rank) for rank in range(comm.size)])
        wanted = sum((ranked(count, rank + comm.rank) for rank in range(comm.size)), np.zeros(count, np.int64))
        found = np.zeros(count, np.int64)
        comm.Reduce_scatter_block(mine, found)
        same(found, wanted, f"block {count}")
        found[:] = 0
        comm.Reduce_scatter(mine, found, [count] * comm.size)
        same(found, wanted, f"{count}")


@check
def nonblocking(comm):
    """Many at once, completed in another order than they were begun."""
    count = 5000
    mine = ranked(count, comm.rank)
    total = sum((ranked(count, rank) for rank in range(comm.size)), np.zeros(count, np.int64))
    everything = np.concatenate([ranked(count, rank) for rank in range(comm.size)])
    for _ in range(5):
        data = [np.zeros(count, np.int64) for _ in range(4)]
        data[0] = ranked(count, 0) if comm.rank == 0 else data[0]
        gathered = np.zeros_like(everything)
        scattered = np.zeros(count, np.int64)
        requests = [
            comm.Ibcast(data[0], 0),
            comm.Iallreduce(mine, data[1]),
            comm.Iallgather(mine, gathered),
            comm.Iscatter(everything, scattered, 0),
            comm.Ireduce(mine, data[2], root=comm.size - 1),
            comm.Iscan(mine, data[3]),
            comm.Ibarrier(),
        ]
        for request in reversed(requests):
            request.Wait()
        same(data[0], ranked(count, 0))
        same(data[1], total)
        same(gathered, everything)
        same(scattered, mine)
        if comm.rank == comm.size - 1:
            same(data[2], total)


@check
def neighbourhoods(comm):
    ring = comm.Create_cart([comm.size], [True])
    left, right = ring.Shift(0, 1)
    for count in (1, 500, 20_000):
        mine = ranked(count, comm.rank)
        found = np.zeros(2 * count, np.int64)
        ring.Neighbor_allgather(mine, found)
        same(found, np.concatenate([ranked(count, left), ranked(count, right)]), f"{count}")
        both = np.concatenate([ranked(count, 100 + comm.rank), ranked(count, 200 + comm.rank)])
        ring.Neighbor_alltoall(both, found)
        if comm.size > 2:
            same(found, np.concatenate([ranked(count, 200 + left), ranked(count, 100 + right)]), f"alltoall {count}")
        request = ring.Ineighbor_allgather(mine, later := np.zeros(2 * count, np.int64))
        request.Wait()
        same(later, np.concatenate([ranked(count, left), ranked(count, right)]), f"later {count}")
    ring.Free()
    graph = comm.Create_dist_graph_adjacent([left], [right], MPI.UNWEIGHTED, MPI.UNWEIGHTED)
    found = np.zeros(1000, np.int64)
    graph.Neighbor_allgather(ranked(1000, comm.rank), found)
    same(found, ranked(1000, left))
    graph.Free()


@check
def persistent(comm):
    if MPI.Get_version() < (4, 0):
        return
    mine, found = np.zeros(3000, np.int64), np.zeros(3000, np.int64)
    request = comm.Allreduce_init(mine, found)
    for turn in range(10):
        mine[:] = ranked(3000, comm.rank + turn)
        request.Start()
        request.Wait()
        same(found, sum((ranked(3000, rank + turn) for rank in range(comm.size)), np.zeros(3000, np.int64)))
    request.Free()


@check
def many_communicators(comm):
    halves = [comm.Split(comm.rank % 2, -comm.rank) for _ in range(10)]
    for number, half in enumerate(halves):
        assert half.allreduce(number) == number * half.size
    for half in halves:
        half.Free()


@check
def large_bytes(comm):
    size = 5_000_011
    data = pattern(size, 9).copy() if comm.rank == 0 else np.zeros(size, np.uint8)
    comm.Bcast(data)
    same(data, pattern(size, 9))
    gathered = np.zeros((comm.size, 400_003), np.uint8)
    comm.Allgather(pattern(400_003, comm.rank), gathered)
    for rank in range(comm.size):
        same(gathered[rank], pattern(400_003, rank))


main()
