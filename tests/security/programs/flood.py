"""Uses keys and nonces in a hurry: four threads in every rank, each with communicators of its own and one for all, send
more than the carrier takes at once, of every size class; then they write to and read from each other's memory; then two
processes more are started, and all do it again. With `protected` each thread's communicators have a protection each.

    python flood.py TURNS [windows] [spawn] [protected]
"""

import os
import sys
import threading

import mpi4py

mpi4py.rc.thread_level = "multiple"
mpi4py.rc.recv_mprobe = False
import numpy as np
from mpi4py import MPI  # after the choices

THREADS = 4
PROTECTIONS = ("none", "integrity", "privacy")
COMMUNICATORS = len(PROTECTIONS)
SIZES = (0, 1, 8, 300, 600, 4096, 4097, 20_000, 70_000, 300_000)
BURST = 24


def content(size, source, number):
    return np.full(size, (source * 31 + number * 7 + size) % 251, np.uint8)


def exchange(comm, thread, turn):
    """Everybody sends a burst to everybody; odd turns are sent before anybody receives."""
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    sizes = [SIZES[(turn + number) % len(SIZES)] for number in range(BURST)]
    received = [(peer, number, np.empty(size, np.uint8)) for peer in peers for number, size in enumerate(sizes)]
    mine = [content(size, comm.rank, number) for number, size in enumerate(sizes)]

    def send():
        return [comm.Isend(mine[number], peer, thread) for peer in peers for number in range(BURST)]

    def receive():
        return [comm.Irecv(buffer, peer, thread) for peer, _, buffer in received]

    requests = send() + receive() if turn % 2 else receive() + send()
    MPI.Request.Waitall(requests)
    for peer, number, buffer in received:
        assert np.array_equal(buffer, content(buffer.size, peer, number)), f"rank {peer}'s message {number} is wrong"


def dup(comm, number):
    if "protected" not in sys.argv:
        return comm.Dup()
    return comm.Dup_with_info(MPI.Info.Create({"gambeson_protection": PROTECTIONS[number]}))


def flood(comm, turns):
    own = [[dup(comm, number) for number in range(COMMUNICATORS)] for _ in range(THREADS)]

    def work(thread):
        try:
            for turn in range(turns):
                exchange(own[thread][turn % COMMUNICATORS], 0, turn)
                exchange(comm, thread, turn + 1)
                own[thread][turn % COMMUNICATORS].Barrier()
        except BaseException as failure:
            print(f"thread {thread}: {failure!r}", file=sys.stderr, flush=True)
            os._exit(1)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comms in own:
        for each in comms:
            each.Free()


def windows(comm, turns):
    """Everybody writes to its place in everybody's memory and reads it back, small and large."""
    for size in (100, 50_000):
        memory = np.zeros(comm.size * size, np.uint8)
        window = MPI.Win.Create(memory, 1, comm=comm)
        peers = [peer for peer in range(comm.size) if peer != comm.rank]
        for turn in range(turns):
            mine = content(size, comm.rank, turn)
            back = [np.empty(size, np.uint8) for _ in peers]
            window.Fence()
            for peer in peers:
                window.Put(mine, peer, comm.rank * size)
            window.Fence()
            for peer, buffer in zip(peers, back, strict=True):
                window.Get(buffer, peer, comm.rank * size)
            window.Fence()
            assert all(np.array_equal(buffer, mine) for buffer in back), "what was read is not what was written"
            for peer in peers:
                assert np.array_equal(memory[peer * size : (peer + 1) * size], content(size, peer, turn))
        window.Free()


turns = int(sys.argv[1])
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE, "this MPI does not grant MPI_THREAD_MULTIPLE"
if "child" in sys.argv:
    parent = MPI.Comm.Get_parent()
    merged = parent.Merge(True)
    flood(merged, turns)
    merged.Free()
    parent.Disconnect()
else:
    world = MPI.COMM_WORLD
    flood(world, turns)
    if "windows" in sys.argv:
        windows(world, turns)
    if "spawn" in sys.argv:
        children = world.Spawn(sys.executable, [__file__, *sys.argv[1:], "child"], 2)
        merged = children.Merge(False)
        flood(merged, turns)
        merged.Free()
        children.Disconnect()
    world.Barrier()
    if world.rank == 0:
        print("all ok", flush=True)
