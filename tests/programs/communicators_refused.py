"""What communicators ask for and can't have, each asked and refused on all ranks; with the argument `all` they can have
nothing at all."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
world.Set_errhandler(MPI.ERRORS_RETURN)


def refused(what: str, wish: dict[str, str], on: MPI.Intracomm = world) -> None:
    for call in (on.Set_info, on.Dup_with_info):
        try:
            call(MPI.Info.Create(wish))
        except MPI.Exception as error:
            if world.rank == 0:
                print(f"{what}: {error.Get_error_string()}", flush=True)
            continue
        raise SystemExit(f"{what} was not refused")


if "all" in sys.argv:
    refused("all", {"gambeson_protection": "privacy"})
    sys.exit()
refused("weaker", {"gambeson_protection": "none", "gambeson_class": "sky"})
refused("unnamed", {"gambeson_protection": "none"})
refused("forged", {"gambeson_protection": "privacy\nnone"})
refused("apart", {"gambeson_protection": ["privacy", "integrity"][world.rank % 2], "gambeson_class": "models"})
missing = {"gambeson_protection": "privacy"} if world.rank else {"other": "hint"}
refused("missing", missing)
named = world.Dup()
named.Set_name("models")
named.Set_info(MPI.Info.Create({"gambeson_protection": "none"}))
named.Barrier()
try:
    named.Idup()
    raise SystemExit("an idup of a communicator with a protection was not refused")
except MPI.Exception as error:
    if world.rank == 0:
        print(f"idup: {error.Get_error_string()}")
assert named.Get_info().Get("gambeson_protection") == "none"
if world.rank == 0:
    print("passed")
