"""Says one thing on each of several communicators: argv is the protection that each asks for, or "-", and what is said.

All bytes are known, so that a capture of the wire shows where they stand in clear. A large message is under way on
another communicator than the one that is being called: its bytes move inside that other one's call.
"""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
LARGE = 1 << 20


def said(word: bytes, length: int) -> np.ndarray:
    return np.frombuffer((word * (length // len(word) + 1))[:length], "u1").copy()


def communicator(protection: str) -> MPI.Intracomm:
    if protection == "-":
        return world.Dup()
    return world.Dup_with_info(MPI.Info.Create({"gambeson_protection": protection, "gambeson_class": "models"}))


def point_to_point(on: MPI.Intracomm, word: bytes) -> None:
    other = world.rank ^ 1
    for length in (64, 20_000, LARGE):
        into = np.zeros(length, "u1")
        on.Sendrecv(said(word, length), other, 1, into, other, 1)
        assert (into == said(word, length)).all()


def collective(on: MPI.Intracomm, word: bytes) -> None:
    into = said(word, LARGE) if on.rank == 0 else np.zeros(LARGE, "u1")
    on.Bcast(into, 0)
    assert (into == said(word, LARGE)).all()
    on.Ibcast(into, 0).Wait()
    on.Allreduce(MPI.IN_PLACE, into, MPI.MAX)
    assert (into == said(word, LARGE)).all()


def main() -> None:
    pairs = list(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    made = [(communicator(protection), word.encode()) for protection, word in pairs]
    for on, word in made:
        point_to_point(on, word)
        collective(on, word)
    other = world.rank ^ 1
    for at, (on, word) in enumerate(made):
        within, _ = made[at - 1]
        into = np.zeros(4 * LARGE, "u1")
        sending = on.Isend(said(word, 4 * LARGE), other, 2)
        within.Barrier()
        receiving = on.Irecv(into, other, 2)
        for _ in range(20):
            within.Sendrecv(np.zeros(8, "u1"), other, 3, np.zeros(8, "u1"), other, 3)
            within.Barrier()
        MPI.Request.Waitall([sending, receiving])
        assert (into == said(word, 4 * LARGE)).all()
    # What is made of a communicator has its protection, and what it had it has given up when it is freed.
    for (on, word), (protection, _) in zip(made, pairs, strict=True):
        derived = on.Split(0, world.rank)
        collective(derived, word)
        if protection != "-":
            assert derived.Get_info().Get("gambeson_protection") == protection
        derived.Free()
        on.Free()
    again = world.Dup()
    assert again.Get_info().Get("gambeson_protection") is None
    point_to_point(again, sys.argv[2].encode() if pairs[0][0] == "-" else b"said after all were freed")
    if world.rank == 0:
        print("passed")


main()
