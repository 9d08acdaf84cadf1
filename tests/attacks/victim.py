"""The program under attack: talks in many ways and checks every byte, size, source and tag that it gets.

    victim.py SEED

Each rank ends with a line `RIGHT <rank>`, or at the first wrong thing with `WRONG <rank>: what` and status 3.
"""

from __future__ import annotations

import os
import random
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
seed = sys.argv[1]
SIZES = [100, 8 << 10, 200 << 10, 3 << 20]


def content(*words: object) -> bytes:
    """The bytes that a message must have; `words` say which message it is, its length comes last."""
    return random.Random(f"{seed} {words}").randbytes(int(str(words[-1])))


def check(condition: bool, what: str) -> None:
    if not condition:
        os.write(1, f"WRONG {rank}: {what}\n".encode())
        os._exit(3)


def receive(source: int, tag: int, expected: bytes, what: str, room: int | None = None) -> None:
    """Receives into a buffer with some room to spare, and looks at everything MPI says and at the bytes beyond."""
    buffer = bytearray(b"\xa5" * ((room or len(expected)) + 64))
    status = MPI.Status()
    world.Recv([memoryview(buffer)[: room or len(expected)], MPI.BYTE], source, tag, status)
    check(status.Get_source() == source, f"{what}: from {status.Get_source()}, not {source}")
    check(status.Get_tag() == tag, f"{what}: tag {status.Get_tag()}, not {tag}")
    count = status.Get_count(MPI.BYTE)
    check(count == len(expected), f"{what}: {count} bytes, not {len(expected)}")
    check(buffer[:count] == expected, f"{what}: other bytes than were sent")
    check(buffer[count:] == b"\xa5" * (len(buffer) - count), f"{what}: bytes beyond the message")


def scatter() -> None:
    """One hands out work: messages to all ranks differ in nothing but who is to get them."""
    for giver in range(size):
        if rank == giver:
            for taker in range(size):
                if taker != giver:
                    world.Send([content("work", giver, taker, 1000), MPI.BYTE], taker, 7)
        else:
            receive(giver, 7, content("work", giver, rank, 1000), f"work from {giver}")


def ring() -> None:
    """A small message goes round; every rank makes the next one."""
    left, right = (rank - 1) % size, (rank + 1) % size
    for lap in range(4):
        for turn in (0, 1):
            if turn == min(rank, 1):
                world.Send([content("ring", lap, rank, 100), MPI.BYTE], right, lap)
            else:
                receive(left, lap, content("ring", lap, left, 100), f"ring, lap {lap}")


def ping_pong(first: int, second: int) -> None:
    """Messages of all sizes there and back; the receive has room for more than comes."""
    other = second if rank == first else first
    for turn in range(2):
        for length in SIZES:
            what = f"ping-pong of {length} B with {other}, turn {turn}"
            mine, theirs = content("pp", turn, rank, other, length), content("pp", turn, other, rank, length)
            if rank == first:
                world.Send([mine, MPI.BYTE], other, length % 1000 + turn)
                receive(other, length % 1000 + turn, theirs, what, length + 1000)
            else:
                receive(other, length % 1000 + turn, theirs, what, length + 1000)
                world.Send([mine, MPI.BYTE], other, length % 1000 + turn)


def exchange() -> None:
    """Many messages under way at a time, both ways, received in another order than sent."""
    others = [peer for peer in range(size) if peer != rank]
    lengths = [random.Random(f"{seed} {i}").choice([0, 1, 64, 100, 4096, 5000, 8192, 70000]) for i in range(12)]
    sends = []
    for i, length in enumerate(lengths):
        sends += [world.Isend([content("x", i, rank, peer, length), MPI.BYTE], peer, i) for peer in others]
    for i, length in reversed(list(enumerate(lengths))):
        for peer in others:
            receive(peer, i, content("x", i, peer, rank, length), f"exchange {i} with {peer}")
    MPI.Request.Waitall(sends)


def any_source() -> None:
    """Rank 0 takes what comes from whoever; order per source must be kept."""
    each = 20
    if rank:
        for i in range(each):
            world.Send([content("any", i, rank, 100 + i), MPI.BYTE], 0, 50 + i % 3)
        return
    seen = dict.fromkeys(range(1, size), 0)
    for _ in range(each * (size - 1)):
        buffer = bytearray(8192)
        status = MPI.Status()
        world.Recv([buffer, MPI.BYTE], MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        source = status.Get_source()
        check(source in seen, f"any source: a message from {source}")
        i = seen[source]
        check(i < each, f"any source: a message too many from {source}")
        seen[source] += 1
        count = status.Get_count(MPI.BYTE)
        check(count == 100 + i, f"any source: message {i} of {source} has {count} bytes")
        check(status.Get_tag() == 50 + i % 3, f"any source: message {i} of {source} has tag {status.Get_tag()}")
        check(
            buffer[:count] == content("any", i, source, 100 + i), f"any source: message {i} of {source} has other bytes"
        )


def collectives() -> None:
    for turn in range(3):
        total = world.allreduce((rank + 1) * (turn + 1))
        check(total == (turn + 1) * size * (size + 1) // 2, f"allreduce: {total}")
        check(world.bcast(content("b", turn, 3000) if rank == 0 else None) == content("b", turn, 3000), "bcast")
        world.Barrier()


def main() -> None:
    world.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    scatter()
    ring()
    for first in range(size):
        for second in range(first + 1, size):
            if rank in (first, second):
                ping_pong(first, second)
    exchange()
    any_source()
    collectives()
    os.write(1, f"RIGHT {rank}\n".encode())


main()
