"""h5py's test suite as its developers run it with MPI: all of it, on every rank, with pytest's plugin for MPI.

Those of its tests that are about MPI open their files by HDF5's parallel driver; the rest goes past MPI, and shows that
nothing changes for a program that is not Gambeson's business.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from conformance.sealing import MEMORY, unsealed
from conformance.sources import BUILD
from conformance.suites import STALL_S, Result, merge, stalled
from harness import hdf5
from harness.jobs import Runner
from harness.mpis import Mpi, clean_environment, find

HERE = Path(__file__).resolve().parent
H5PY = "h5py-3.16.0"
TOOLS = ("Cython<4", "pkgconfig", "setuptools>=77", "pytest", "pytest-mpi")
"""What builds h5py, and what runs its tests."""
OPTIONS = ("--with-mpi", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-m", "not network")
TIME_LIMIT_S = 600.0


def h5py(mpi: Mpi) -> list[Path]:
    """Folders with h5py for the distribution's HDF5 of this MPI's ABI, and with what its tests need. It is built from
    its source distribution once, which takes minutes."""
    _, library = hdf5.library(mpi)
    flavour = "openmpi" if mpi.is_openmpi else "mpich"
    # Of one ABI, the build for one MPI serves the others.
    builder = find(flavour)
    tools, folder = BUILD / f"h5py-tools-{flavour}", BUILD / f"{H5PY}-for-{flavour}"
    pip = [builder.python, "-m", "pip", "-q", "--disable-pip-version-check", "--no-cache-dir"]
    if not (tools / "pytest_mpi").is_dir():
        subprocess.run([*pip, "install", "--target", str(tools), *TOOLS], check=True)
    if not (folder / "h5py").is_dir():
        # pip looks for HDF5 by this folder's `include` and `lib`; the wheel of another MPI must not be taken.
        place = {"HDF5_MPI": "ON", "CC": str(builder.mpicc), "HDF5_DIR": str(library.parent), "PYTHONPATH": str(tools)}
        wanted = ["--no-deps", "--no-build-isolation", "--no-binary", "h5py", H5PY.replace("-", "==")]
        environment = {**clean_environment(), **place}
        subprocess.run([*pip, "install", "--target", str(folder), *wanted], env=environment, check=True)
    return [folder, tools]


def run_h5py(runner: Runner, mpi: Mpi, ranks: int) -> Result:
    result = Result("h5py", mpi.name, ranks, not runner.plain)
    libraries = (hdf5.environment(mpi).get("LD_LIBRARY_PATH"), mpi.common.get("LD_LIBRARY_PATH"))
    env = {"PYTHONPATH": ":".join(map(str, h5py(mpi)))}
    if any(libraries):
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory(dir=MEMORY) as place:
        job = runner.run(
            mpi,
            [HERE / "h5py_driver.py", out, *OPTIONS, "--pyargs", "h5py"],
            n=ranks,
            env={**env, "TMPDIR": place},
            cwd=Path(place),
            timeout=TIME_LIMIT_S,
            stalled=stalled(Path(out), STALL_S),
        )
        found, running = merge(Path(out))
    failed = job.timed_out or job.status != 0
    if failed and not {"failed", "error"} & set(found.values()):
        # Who waits in a later test is the victim of the first that did not end.
        culprit = min(running, key=list(found).index) if running else "(job)"
        found[culprit] = "hang" if job.timed_out else "died"
        result.note(culprit, found[culprit], job)
    if unsealed(runner):
        found["(no file was sealed)"] = "failed"
    result.outcomes = {f"h5py {name}": outcome for name, outcome in found.items()}
    result.seconds = job.seconds
    return result
