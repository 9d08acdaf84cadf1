"""A seeded mixture of everything at once: messages of all sizes, collectives in flight, one-sided. Any number of ranks.

All ranks draw the same plan from the seed, so each knows what to expect of the others.
"""

import random
import sys

import numpy as np
from checks import WORLD, check, main, pattern, same
from mpi4py import MPI

SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
SIZES = (0, 1, 8, 63, 500, 4095, 4097, 20_000, 65_537, 200_000, 262_145, 700_000, 3_000_000)
WEIGHTS = (4, 4, 8, 6, 6, 4, 4, 4, 3, 3, 2, 2, 1)


def mixture(comm, rounds, one_sided):
    plan = random.Random(SEED)
    if one_sided:
        win = MPI.Win.Allocate(8 * 4096, 8, comm=comm)
        memory = np.frombuffer(win.tomemory(), np.int64)
        memory[:] = 0
        comm.Barrier()
    for turn in range(rounds):
        messages = []
        for number in range(plan.randint(5, 40)):
            source, target = plan.randrange(comm.size), plan.randrange(comm.size)
            size = plan.choices(SIZES, WEIGHTS)[0]
            messages.append((number, source, target, size, plan.choice(["send", "ssend"]), plan.random() < 0.5))
        value = plan.randint(1, 1000)
        pending, arrived = [], []
        total = np.zeros(3000, np.int64)
        ahead = [m for m in messages if m[2] == comm.rank and m[5]]
        later = [m for m in messages if m[2] == comm.rank and not m[5]]
        for number, source, _, size, _, _ in ahead:
            buffer = np.zeros(size, np.uint8)
            arrived.append((number, buffer))
            pending.append(comm.Irecv(buffer, source, number))
        mine = np.full(3000, value + comm.rank, np.int64)
        collective = comm.Iallreduce(mine, total)
        for number, source, target, size, mode, _ in messages:
            if source == comm.rank:
                begin = comm.Issend if mode == "ssend" else comm.Isend
                pending.append(begin(pattern(size, number + turn), target, number))
        if one_sided:
            outgoing = np.full(4096, value, np.int64)
            win.Lock_all()
            for target in range(comm.size):
                win.Accumulate(outgoing, target, op=MPI.SUM)
            win.Unlock_all()
        random.Random(turn * 100 + comm.rank).shuffle(later)
        for number, source, _, size, _, _ in later:
            buffer = np.zeros(size, np.uint8)
            arrived.append((number, buffer))
            pending.append(comm.Irecv(buffer, source, number))
        MPI.Request.Waitall(pending)
        collective.Wait()
        for number, buffer in arrived:
            same(buffer, pattern(buffer.size, number + turn), f"seed {SEED}, turn {turn}, message {number}")
        assert (total == sum(value + rank for rank in range(comm.size))).all(), f"seed {SEED}, turn {turn}"
        if one_sided:
            comm.Barrier()
            win.Lock(comm.rank)
            assert (memory == comm.size * value).all(), f"seed {SEED}, turn {turn}: one-sided"
            memory[:] = 0
            win.Unlock(comm.rank)
            comm.Barrier()
    if one_sided:
        win.Free()


@check
def two_sided(comm):
    mixture(comm, 25, one_sided=False)


@check
def with_one_sided(comm):
    mixture(comm, 15, one_sided=True)


if WORLD.rank == 0:
    print("seed", SEED, flush=True)
main()
