"""The operations of IMB-MPI1, -P2P, -NBC, -RMA and -MT in fixed loops, each result checked, on any MPI.

    python operations.py OUT THREAD_LEVEL [operations to leave out, separated by commas]

Operations in several threads run with the level `multiple` only.

Rank 0 writes `begin NAME`, then `end NAME`, to OUT/rank-0.
"""

import pathlib
import sys
import threading
import traceback

import mpi4py
import numpy as np

mpi4py.rc.thread_level = sys.argv[2]
from mpi4py import MPI  # after the thread level is chosen

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
right, left = (rank + 1) % ranks, (rank - 1) % ranks
SIZES = [0, *(2**power for power in range(21))]
LOOPS = 4
operations = []
EVERYBODY = range(ranks)


def operation(function):
    operations.append(function)
    return function


def data(size, seed):
    return ((np.arange(size, dtype=np.uint32) * 2654435761 + seed * 97) >> 24).astype(np.uint8)


def expect(found, wanted):
    assert np.array_equal(found, wanted), f"{found.size} bytes differ"


def pairs():
    """Partner of this rank when even and odd ranks pair up; the last odd one out has none."""
    partner = rank ^ 1
    return partner if partner < ranks else MPI.PROC_NULL


def sweep(body, sizes=SIZES):
    for size in sizes:
        for turn in range(LOOPS):
            body(size, turn)


@operation
def PingPong(source=None):
    partner = pairs()
    if partner == MPI.PROC_NULL:
        return

    def body(size, turn):
        buffer = np.zeros(size, np.uint8)
        if rank % 2 == 0:
            world.Send(data(size, turn), partner, 1)
            world.Recv(buffer, partner if source is None else source, 2)
        else:
            world.Recv(buffer, partner if source is None else source, 1)
            world.Send(data(size, turn), partner, 2)
        expect(buffer, data(size, turn))

    sweep(body)


@operation
def PingPongAnySource():
    if ranks == 2:
        PingPong(MPI.ANY_SOURCE)


@operation
def PingPing():
    partner = pairs()
    if partner == MPI.PROC_NULL:
        return

    def body(size, turn):
        buffer = np.zeros(size, np.uint8)
        outgoing = data(size, turn + rank)
        request = world.Isend(outgoing, partner)
        world.Recv(buffer, partner)
        request.Wait()
        expect(buffer, data(size, turn + partner))

    sweep(body)


@operation
def Sendrecv():
    def body(size, turn):
        buffer = np.zeros(size, np.uint8)
        world.Sendrecv(data(size, turn + rank), right, 0, buffer, left, 0)
        expect(buffer, data(size, turn + left))

    sweep(body)


@operation
def SendRecv_Replace():
    def body(size, turn):
        buffer = data(size, turn + rank).copy()
        world.Sendrecv_replace(buffer, right, 0, left, 0)
        expect(buffer, data(size, turn + left))

    sweep(body)


@operation
def Exchange():
    def body(size, turn):
        from_left, from_right = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        outgoing = data(size, turn + rank)
        requests = [
            world.Irecv(from_left, left, 1),
            world.Irecv(from_right, right, 2),
            world.Isend(outgoing, right, 1),
            world.Isend(outgoing, left, 2),
        ]
        MPI.Request.Waitall(requests)
        expect(from_left, data(size, turn + left))
        expect(from_right, data(size, turn + right))

    sweep(body)


def random_pairs(both):
    draw = np.random.default_rng(7)

    def body(size, turn):
        order = draw.permutation(ranks)
        place = int(np.flatnonzero(order == rank)[0])
        if place ^ 1 >= ranks:
            return
        partner = int(order[place ^ 1])
        outgoing, buffer = data(size, turn + rank), np.zeros(size, np.uint8)
        requests = []
        if both or place % 2:
            requests.append(world.Irecv(buffer, partner))
        if both or not place % 2:
            requests.append(world.Isend(outgoing, partner))
        MPI.Request.Waitall(requests)
        if both or place % 2:
            expect(buffer, data(size, turn + partner))

    sweep(body)


@operation
def Unirandom():
    random_pairs(both=False)


@operation
def Birandom():
    random_pairs(both=True)


def bands(both):
    """A window of 64 messages at once."""
    partner = pairs()
    if partner == MPI.PROC_NULL:
        return
    for size in SIZES[:18]:
        incoming = np.zeros((64, size), np.uint8)
        outgoing = data(size, 3)
        requests = []
        if both or rank % 2:
            requests += [world.Irecv(row, partner) for row in incoming]
        if both or not rank % 2:
            requests += [world.Isend(outgoing, partner) for _ in range(64)]
        MPI.Request.Waitall(requests)
        if both or rank % 2:
            for row in incoming:
                expect(row, outgoing)


@operation
def Uniband():
    bands(both=False)


@operation
def Biband():
    bands(both=True)


def stencil(dimensions):
    grid = world.Create_cart(MPI.Compute_dims(ranks, dimensions), [True] * dimensions)
    for size in SIZES[::2]:
        outgoing = data(size, grid.rank)
        incoming, wanted, requests = [], [], []
        for axis in range(dimensions):
            for way in (1, -1):
                source, target = grid.Shift(axis, way)
                tag = 2 * axis + (way > 0)
                incoming.append(np.zeros(size, np.uint8))
                wanted.append(data(size, source))
                requests.append(grid.Irecv(incoming[-1], source, tag))
                requests.append(grid.Isend(outgoing, target, tag))
        MPI.Request.Waitall(requests)
        for found, right_one in zip(incoming, wanted, strict=True):
            expect(found, right_one)
    grid.Free()


@operation
def Stencil2D():
    stencil(2)


@operation
def Stencil3D():
    stencil(3)


def collective(name, prepare):
    """A blocking and a nonblocking operation of the same name; prepare(count) gives arguments and the check."""

    def blocking():
        def body(count, _turn):
            arguments, check = prepare(count)
            getattr(world, name)(*arguments)
            check()

        sweep(body, SIZES[:18])

    def nonblocking():
        def body(count, _turn):
            arguments, check = prepare(count)
            request = getattr(world, "I" + name.lower())(*arguments)
            total = sum(range(1000))
            request.Wait()
            assert total == 499500
            check()

        sweep(body, SIZES[:18])

    blocking.__name__, nonblocking.__name__ = name, "I" + name.lower()
    operations.extend([blocking, nonblocking])


def blocks(count, seeds):
    return np.concatenate([data(count, seed) for seed in seeds])


def of_everybody(count):
    return blocks(count, range(ranks))


def receiving(make):
    """From make(count) -> (arguments before, size of the result, arguments after, wanted or None)."""

    def prepare(count):
        before, size, after, wanted = make(count)
        found = np.zeros(size, np.uint8)
        argument = found
        if callable(after):
            argument, after = after(found)

        def check():
            if wanted is not None:
                expect(found, wanted)

        return [*before, argument, *after], check

    return prepare


def evenly(count):
    return [count] * ranks


collective("Allgather", receiving(lambda c: ([data(c, rank)], c * ranks, [], of_everybody(c))))
collective(
    "Allgatherv",
    receiving(lambda c: ([data(c, rank)], c * ranks, lambda f: ([f, evenly(c)], []), of_everybody(c))),
)
collective("Gather", receiving(lambda c: ([data(c, rank)], c * ranks, [0], of_everybody(c) if rank == 0 else None)))
collective(
    "Gatherv",
    receiving(
        lambda c: (
            [data(c, rank)],
            c * ranks,
            lambda f: ([f, evenly(c)] if rank == 0 else None, [0]),
            of_everybody(c) if rank == 0 else None,
        )
    ),
)
collective("Scatter", receiving(lambda c: ([of_everybody(c)], c, [0], data(c, rank))))
collective("Scatterv", receiving(lambda c: ([[of_everybody(c), evenly(c)]], c, [0], data(c, rank))))
collective(
    "Alltoall",
    receiving(
        lambda c: (
            [blocks(c, [rank * ranks + r for r in range(ranks)])],
            c * ranks,
            [],
            blocks(c, [r * ranks + rank for r in range(ranks)]),
        )
    ),
)
collective(
    "Alltoallv",
    receiving(
        lambda c: (
            [[blocks(c, [rank * ranks + r for r in range(ranks)]), evenly(c)]],
            c * ranks,
            lambda f: ([f, evenly(c)], []),
            blocks(c, [r * ranks + rank for r in range(ranks)]),
        )
    ),
)


def mixed(count, seeds):
    """Exclusive or: some MPIs add bytes with saturation."""
    return np.bitwise_xor.reduce([data(count, seed) for seed in seeds])


def apart(count):
    """What this rank gives to a reduction whose result is scattered."""
    return blocks(count, [rank + r for r in range(ranks)])


def total_at(count):
    return mixed(count, [r + rank for r in range(ranks)])


collective("Allreduce", receiving(lambda c: ([data(c, rank)], c, [MPI.BXOR], mixed(c, EVERYBODY))))
collective(
    "Reduce", receiving(lambda c: ([data(c, rank)], c, [MPI.BXOR, 0], mixed(c, EVERYBODY) if rank == 0 else None))
)
collective("Reduce_scatter", receiving(lambda c: ([apart(c)], c, [evenly(c), MPI.BXOR], total_at(c))))
collective("Reduce_scatter_block", receiving(lambda c: ([apart(c)], c, [MPI.BXOR], total_at(c))))


def broadcast(count):
    buffer = data(count, 5).copy() if rank == 0 else np.zeros(count, np.uint8)
    return [buffer, 0], lambda: expect(buffer, data(count, 5))


collective("Bcast", broadcast)
collective("Barrier", lambda _count: ([], lambda: None))


# --- one-sided


def windowed(body, sizes=SIZES[:19], slots=1):
    """body(win, memory, size) inside a window of `slots` times the greatest size, cleared before each size."""
    room = max(sizes) * slots
    win = MPI.Win.Allocate(room, 1, comm=world)
    memory = np.frombuffer(win.tomemory(), np.uint8)
    for size in sizes:
        memory[:] = 0
        world.Barrier()
        body(win, memory, size)
        world.Barrier()
    win.Free()


def put_to(targets, sources):
    """Every rank of `sources` puts into its own slot at each of targets(rank)."""

    def body(win, memory, size):
        outgoing = data(size, rank)
        for _ in range(LOOPS):
            win.Lock_all()
            if rank in sources:
                for target in targets(rank):
                    win.Put(outgoing, target, (rank * size, size, MPI.BYTE))
                    win.Flush(target)
            win.Unlock_all()
        world.Barrier()
        win.Lock(rank)
        for source in sources:
            if rank in targets(source):
                expect(memory[source * size : (source + 1) * size], data(size, source))
        win.Unlock(rank)

    windowed(body, slots=ranks)


def get_from(targets, sources):
    def body(win, memory, size):
        win.Lock(rank, MPI.LOCK_EXCLUSIVE)
        memory[:size] = data(size, rank)
        win.Unlock(rank)
        world.Barrier()
        win.Lock_all()
        if rank in sources:
            for target in targets(rank):
                found = np.zeros(size, np.uint8)
                win.Get(found, target, (0, size, MPI.BYTE))
                win.Flush(target)
                expect(found, data(size, target))
        win.Unlock_all()

    windowed(body)


def others(of):
    return [r for r in EVERYBODY if r != of]


def both_sides(of):
    return sorted({(of + 1) % ranks, (of - 1) % ranks} - {of})


for name, move, targets, sources in [
    ("Unidir_put", put_to, lambda of: [1], [0]),
    ("Bidir_put", put_to, lambda of: [1 - of], [0, 1]),
    ("One_put_all", put_to, others, [0]),
    ("All_put_all", put_to, others, EVERYBODY),
    ("Exchange_put", put_to, both_sides, EVERYBODY),
    ("Unidir_get", get_from, lambda of: [1], [0]),
    ("Bidir_get", get_from, lambda of: [1 - of], [0, 1]),
    ("One_get_all", get_from, others, [0]),
    ("All_get_all", get_from, others, EVERYBODY),
    ("Exchange_get", get_from, both_sides, EVERYBODY),
]:

    def one_sided(move=move, targets=targets, sources=sources):
        move(targets, sources)

    one_sided.__name__ = name
    operations.append(one_sided)


def accumulating(fetch):
    def body(win, memory, size):
        ones, found = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        for _ in range(LOOPS):
            win.Lock(0, MPI.LOCK_EXCLUSIVE)
            if fetch:
                win.Get_accumulate(ones, found, 0, (0, size, MPI.UNSIGNED_CHAR), MPI.SUM)
            else:
                win.Accumulate(ones, 0, (0, size, MPI.UNSIGNED_CHAR), MPI.SUM)
            win.Unlock(0)
        world.Barrier()
        if rank == 0:
            win.Lock(0)
            expect(memory[:size], np.full(size, LOOPS * ranks, np.uint8))
            win.Unlock(0)

    windowed(body, SIZES[:17])


@operation
def Accumulate():
    accumulating(fetch=False)


@operation
def Get_accumulate():
    accumulating(fetch=True)


@operation
def Fetch_and_op():
    win = MPI.Win.Allocate(8, 8, comm=world)
    np.frombuffer(win.tomemory(), np.int64)[:] = 0
    world.Barrier()
    one, seen = np.ones(1, np.int64), np.zeros(1, np.int64)
    for _ in range(50):
        win.Lock(0)
        win.Fetch_and_op(one, seen, 0, 0, MPI.SUM)
        win.Unlock(0)
    assert world.allreduce(int(seen[0]), MPI.MAX) == 50 * ranks - 1
    win.Free()


@operation
def Compare_and_swap():
    win = MPI.Win.Allocate(8, 8, comm=world)
    np.frombuffer(win.tomemory(), np.int64)[:] = 0
    world.Barrier()
    mine, empty, seen = np.array([rank + 1], np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    win.Lock(0, MPI.LOCK_EXCLUSIVE)
    win.Compare_and_swap(mine, empty, seen, 0, 0)
    win.Unlock(0)
    assert world.allreduce(int(seen[0] == 0)) == 1
    win.Free()


@operation
def Truly_passive_put():
    """The target computes and looks at the message only afterwards."""

    def body(win, memory, size):
        outgoing = data(size, 1)
        if rank == 0:
            win.Lock(1)
            win.Put(outgoing, 1, (0, size, MPI.BYTE))
            win.Unlock(1)
        elif rank == 1:
            np.sort(np.random.default_rng(1).random(20_000))
        world.Barrier()
        if rank == 1:
            win.Lock(1)
            expect(memory[:size], outgoing)
            win.Unlock(1)

    windowed(body)


# --- threads


def threaded(body):
    comms = [world.Dup() for _ in range(4)]
    failures = []

    def work(thread):
        try:
            for size in (0, 16, 64, 16_000, 200_000):
                for turn in range(LOOPS):
                    body(comms[thread], size, turn + thread)
        except BaseException:
            traceback.print_exc()
            failures.append(thread)
            world.Abort(1)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.Free()
    assert not failures


def exchange_of(comm, size, seed):
    buffer = np.zeros(size, np.uint8)
    comm.Sendrecv(data(size, seed + rank), right, 0, buffer, left, 0)
    expect(buffer, data(size, seed + left))


@operation
def SendRecvMT():
    threaded(exchange_of)


@operation
def BiBandMT():
    def body(comm, size, seed):
        incoming = np.zeros((16, size), np.uint8)
        outgoing = data(size, seed + rank)
        requests = [comm.Irecv(row, left, k) for k, row in enumerate(incoming)]
        requests += [comm.Isend(outgoing, right, k) for k in range(16)]
        MPI.Request.Waitall(requests)
        for row in incoming:
            expect(row, data(size, seed + left))

    threaded(body)


@operation
def BcastMT():
    def body(comm, size, seed):
        buffer = data(size, seed).copy() if rank == 0 else np.zeros(size, np.uint8)
        comm.Bcast(buffer)
        expect(buffer, data(size, seed))

    threaded(body)


@operation
def AllReduceMT():
    def body(comm, size, seed):
        found = np.zeros(size, np.uint8)
        comm.Allreduce(data(size, seed), found, MPI.MAX)
        expect(found, data(size, seed))

    threaded(body)


@operation
def BarrierMT():
    threaded(lambda comm, _size, _seed: comm.Barrier())


left_out = sys.argv[3].split(",") if len(sys.argv) > 3 else []
progress = (pathlib.Path(sys.argv[1]) / "rank-0").open("w", buffering=1) if rank == 0 else None
for function in operations:
    name = function.__name__
    if name in left_out or (name.endswith("MT") and sys.argv[2] != "multiple"):
        continue
    world.Barrier()
    if progress:
        progress.write(f"begin {name}\n")
    try:
        function()
    except BaseException:
        print(f"{name} on rank {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        world.Abort(1)
    world.Barrier()
    if progress:
        progress.write(f"end {name}\n")
