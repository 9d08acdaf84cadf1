"""An ocean and an atmosphere that exchange their halos often and their fluxes seldom, protected by communicator.

The first half of the ranks is the ocean, the second the atmosphere. Each model has a communicator of its own, and
pairs of an ocean's and an atmosphere's rank share the coupler. The same days pass three times: with nothing protected,
with the coupler alone, with everything. That is Table 1 of the secure-nexus paper, over MPI.

    gambeson run --intra-host sealed --policy examples/communicators/policy.toml -- \\
        mpiexec -n 4 python examples/communicators/coupled.py
"""

import argparse
import statistics
import time

import numpy as np
from mpi4py import MPI

SETTINGS = {"none": ("none", "none"), "coupler sealed": ("none", "privacy"), "all sealed": ("privacy", "privacy")}


def protect(communicator: MPI.Intracomm, name: str, protection: str) -> None:
    communicator.Set_info(MPI.Info.Create({"gambeson_class": name, "gambeson_protection": protection}))


def day(model: MPI.Intracomm, coupler: MPI.Intracomm, partner: int, steps: int, halo: np.ndarray) -> None:
    into = np.empty_like(halo)
    right, left = (model.rank + 1) % model.size, (model.rank - 1) % model.size
    for _ in range(steps):
        model.Sendrecv(halo, right, 1, into, left, 1)
        model.allreduce(float(into[0]), MPI.MAX)
    fluxes = halo[: halo.size // 8]
    coupler.Sendrecv(fluxes, partner, 2, np.empty_like(fluxes), partner, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--steps", type=int, default=24, help="exchanges of halos a day")
    parser.add_argument("--halo", type=int, default=1 << 20, help="bytes of a halo")
    parser.add_argument("--rounds", type=int, default=3, help="how often all of it is done")
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    half = world.size // 2
    if world.size % 2 or not half:
        raise SystemExit("start it on an even number of ranks: one half is the ocean, the other the atmosphere")
    model = world.Split(int(world.rank >= half), world.rank)
    coupler = world.Dup()
    partner = (world.rank + half) % world.size
    halo = np.full(options.halo // 8, float(world.rank))
    taken: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(options.rounds):
        for setting, (of_model, of_coupler) in SETTINGS.items():
            protect(model, "model", of_model)
            protect(coupler, "coupler", of_coupler)
            world.Barrier()
            begin = time.perf_counter()
            for _ in range(options.days):
                day(model, coupler, partner, options.steps, halo)
            elapsed = world.allreduce(time.perf_counter() - begin, MPI.MAX)
            taken[setting].append(elapsed / options.days)
    if world.rank == 0:
        print(f"{'protected':<16}{'ms per day':>12}{'beside none':>13}{'median':>9}")
        for setting, seconds in taken.items():
            median = statistics.median(mine / none for mine, none in zip(seconds, taken["none"], strict=True))
            print(f"{setting:<16}{min(seconds) * 1e3:>12.2f}{min(seconds) / min(taken['none']):>13.2f}{median:>9.2f}")


main()
