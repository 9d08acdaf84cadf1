"""The distribution's parallel HDF5, under MPIs that are not the distribution's."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.mpis import ROOT, Mpi, Unavailable


def library(mpi: Mpi) -> tuple[Path, Path]:
    """The distribution's HDF5 for the ABI of this MPI: its headers and its library."""
    flavour = "openmpi" if mpi.is_openmpi else "mpich"
    found = next(iter(sorted(Path("/usr/lib").glob(f"*/hdf5/{flavour}/libhdf5.so"))), None)
    if found is None:
        raise Unavailable(
            f"HDF5 for {mpi.name} is missing: run tools/bootstrap.sh conformance as root, which installs"
            f" libhdf5-{flavour}-dev"
        )
    return Path("/usr/include/hdf5") / flavour, found


def environment(mpi: Mpi) -> dict[str, str]:
    """What a program with the distribution's HDF5 needs to find this MPI's library instead of the distribution's."""
    if mpi.name == "debian-openmpi":
        return {}
    paths = [mpi.bin.parent / "lib"]
    if not mpi.is_openmpi:
        # There the library of the same ABI is called so.
        link = ROOT / "build" / "hdf5" / f"libraries-{mpi.name}" / "libmpich.so.12"
        link.parent.mkdir(parents=True, exist_ok=True)
        own = (mpi.bin.parent / "lib" / "libmpi.so.12").resolve()
        if link.resolve() != own:
            link.unlink(missing_ok=True)
            # A run of tests beside this one may have made it meanwhile.
            with contextlib.suppress(FileExistsError):
                link.symlink_to(own)
        paths.insert(0, link.parent)
    return {"LD_LIBRARY_PATH": ":".join(map(str, paths))}
