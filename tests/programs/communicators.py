"""Says one thing on each of several communicators: argv is the protection that each asks for, or "-", and what is said.

    communicators.py [sessions] [windows] [partitions] PROTECTION WORD ...

All bytes are known, so that a capture of the wire shows where they stand in clear. A large message is under way on
another communicator than the one that is being called: its bytes move inside that other one's call. What goes through
windows and partitions is the word backwards, said when the communicator is the last that was made. With sessions there
is no MPI_COMM_WORLD.
"""

import sys

import mpi4py
import numpy as np

FEATURES = {"sessions", "windows", "partitions"}
features = FEATURES.intersection(sys.argv)
words = [word for word in sys.argv[1:] if word not in FEATURES]
mpi4py.rc.initialize = mpi4py.rc.finalize = "sessions" not in features
# Open MPI 4 has no windows for programs with many threads.
mpi4py.rc.thread_level = "single"
from mpi4py import MPI  # after the choices

LARGE = 1 << 20
if "sessions" in features:
    session = MPI.Session.Init()
    everybody = session.Create_group("mpi://WORLD")
    world = MPI.Intracomm.Create_from_group(everybody, "world")
else:
    world = MPI.COMM_WORLD


def said(word: bytes, length: int) -> np.ndarray:
    return np.frombuffer((word * (length // len(word) + 1))[:length], "u1").copy()


def communicator(protection: str) -> MPI.Intracomm:
    wish = {} if protection == "-" else {"gambeson_protection": protection, "gambeson_class": "models"}
    info = MPI.Info.Create(wish)
    if "sessions" in features:
        return MPI.Intracomm.Create_from_group(everybody, protection, info)
    return world.Dup_with_info(info) if wish else world.Dup()


def windows(on: MPI.Intracomm, word: bytes) -> None:
    other, memory = on.rank ^ 1, np.zeros(LARGE, "u1")
    for window in (MPI.Win.Create(memory, 1, comm=on), MPI.Win.Allocate(LARGE, 1, comm=on)):
        for length in (64, 20_000, LARGE):
            what, found = said(word, length), np.zeros(length, "u1")
            window.Fence()
            window.Put(what, other)
            window.Fence()
            window.Get(found, other)
            window.Fence()
            window.Accumulate(what, other, op=MPI.REPLACE)
            window.Fence()
            assert (found == what).all()
        window.Free()


def partitions(on: MPI.Intracomm, word: bytes) -> None:
    what, into = said(word, LARGE), np.zeros(LARGE, "u1")
    parts = 8
    if on.rank % 2:
        request = on.Precv_init([into, LARGE // parts, MPI.BYTE], parts, on.rank ^ 1, 4)
        request.Start()
    else:
        request = on.Psend_init([what, LARGE // parts, MPI.BYTE], parts, on.rank ^ 1, 4)
        request.Start()
        for part in range(parts):
            request.Pready(part)
    request.Wait()
    request.Free()
    assert on.rank % 2 == 0 or (into == what).all()


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
    pairs = list(zip(words[::2], words[1::2], strict=True))
    made = []
    for protection, word in pairs:
        on = communicator(protection)
        made.append((on, word.encode()))
        for feature in (windows, partitions):
            if feature.__name__ in features:
                feature(on, word.encode()[::-1])
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
    point_to_point(again, words[1].encode() if pairs[0][0] == "-" else b"said after all were freed")
    if world.rank == 0:
        print("passed", flush=True)
    if "sessions" in features:
        again.Free()
        world.Free()
        session.Finalize()


main()
