"""Communicators that two groups may know by different identifiers: argv is what the first group says to the second.

It makes communicators in clear first, so that what is the next free identifier in the second group is one of theirs.
Four ranks, no world.
"""

import sys

import mpi4py
import numpy as np

mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI  # after the choices

CLEAR = {"gambeson_protection": "none", "gambeson_class": "models"}
SEALED = {"gambeson_protection": "privacy"}
WORD = np.frombuffer(sys.argv[1].encode() * 1000, "u1").copy()


def of_group(group: MPI.Group, tag: str, wish: dict[str, str]) -> MPI.Intracomm:
    return MPI.Intracomm.Create_from_group(group, tag, MPI.Info.Create(wish), MPI.ERRORS_RETURN)


def of_groups(mine: MPI.Group, theirs: MPI.Group, tag: str, wish: dict[str, str]) -> MPI.Intercomm:
    info = MPI.Info.Create(wish)
    return MPI.Intercomm.Create_from_groups(mine, 0, theirs, 0, tag, info, MPI.ERRORS_RETURN)


def main() -> None:
    session = MPI.Session.Init()
    everybody = session.Create_group("mpi://WORLD")
    rank, first = everybody.rank, everybody.rank < 2
    low, high = everybody.Incl([0, 1]), everybody.Incl([2, 3])
    mine, theirs = (low, high) if first else (high, low)

    def say(on: MPI.Comm, other: int) -> None:
        if first:
            on.Send(WORD, other, 1)
        else:
            into = np.zeros_like(WORD)
            on.Recv(into, other, 1)
            assert (into == WORD).all()

    own = [of_group(mine, f"own {number}", CLEAR if first else {}) for number in range(5 if first else 1)]
    world = of_group(everybody, "world", {})
    say(world, rank ^ 2)
    bridge = own[0].Create_intercomm(0, world, 2 if first else 0, 9)
    say(bridge, mine.rank)
    made = [*own, world, bridge]
    for name, other, make in (
        ("one group", rank ^ 2, lambda: of_group(everybody, "sealed", SEALED)),
        ("two groups", mine.rank, lambda: of_groups(mine, theirs, "between", SEALED)),
    ):
        try:
            sealed = make()
        except MPI.Exception:
            print(f"{name}: refused\n", end="", flush=True)
            continue
        assert sealed.Get_info().Get("gambeson_protection") == "privacy"
        say(sealed, other)
        print(f"{name}: sealed\n", end="", flush=True)
        made.append(sealed)
    for each in made:
        each.Free()
    session.Finalize()


main()
