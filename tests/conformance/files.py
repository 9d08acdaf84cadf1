"""The foreign suites about files, in clear and sealed: mpi4py's tests of MPI-IO, and HDF5's, h5py's and PnetCDF's."""

from __future__ import annotations

from dataclasses import replace

from conformance.h5py_suite import run_h5py
from conformance.hdf5_suite import HDF5_PROGRAMS, run_hdf5
from conformance.pnetcdf_suite import FOLDERS, run_pnetcdf
from conformance.sealing import unsealed, vault
from conformance.suites import Outcomes, Result, run_mpi4py
from harness.jobs import Runner
from harness.mpis import Mpi

FILE_SUITES = {"mpi4py-files": (2,), "hdf5": (4,), "h5py": (2, 4), "pnetcdf": (4,)}
"""With how many ranks each runs. Some of HDF5's tests want four, and so many PnetCDF's `make ptest` takes."""
MPI4PY_MODULES = ["test_file", "test_io"]


def parts_of(suite: str) -> list[str]:
    if suite == "mpi4py-files":
        return MPI4PY_MODULES
    return {"hdf5": list(HDF5_PROGRAMS), "h5py": ["h5py"], "pnetcdf": list(FOLDERS)}[suite]


def run_files(
    runner: Runner, mpi: Mpi, ranks: int, suite: str, part: str, known: Outcomes | None = None, only: str = ""
) -> Result:
    """One part of a suite; of HDF5's testphdf5 and of PnetCDF's folders, `only` names one test."""
    with vault(runner) as runner:
        if suite == "hdf5":
            return run_hdf5(runner, mpi, ranks, part, only)
        if suite == "pnetcdf":
            return run_pnetcdf(runner, mpi, ranks, part, only)
        if suite == "h5py":
            return run_h5py(runner, mpi, ranks)
        result = replace(run_mpi4py(runner, mpi, ranks, [part], known), suite=suite)
        if unsealed(runner):
            result.outcomes[f"{part} (no file was sealed)"] = "failed"
        return result
