"""The MPI installations the tests run on, and the settings under which each uses libfabric's tcp without Gambeson."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ("mpich", "openmpi", "intel")
ALL = (*DEFAULT, "debian-openmpi")


class Unavailable(Exception):
    """An MPI that is not installed; the text says how to install it."""


@dataclass(frozen=True)
class Mpi:
    """One installed MPI."""

    name: str
    mpiexec: list[str]
    """The launcher with the options it needs here, up to but without `-n`."""
    python: str
    """A Python whose mpi4py uses this MPI."""
    common: dict[str, str]
    """Environment that a job needs whether sealed or plain."""
    env: dict[str, str]
    """Environment of a plain job in which every message passes libfabric's tcp provider, inside a host too."""
    mpicc: str | None = None
    """A compiler wrapper whose programs run under this MPI."""
    mpifort: str | None = None
    fortran: dict[str, str] = field(default_factory=dict)
    """Environment that programs of `mpifort` need besides."""
    bin: Path = field(default_factory=Path)

    @property
    def is_openmpi(self) -> bool:
        return "openmpi" in self.name


def venv(name: str) -> Path:
    """The virtual environment tools/bootstrap.sh made for `name`."""
    folder = ROOT / "build" / f"venv-{name}"
    if not (folder / ".requirements").is_file():
        raise Unavailable(f"build/venv-{name} is missing: run tools/bootstrap.sh test")
    return folder


# Without it the tcp provider stops at 64 messages that nobody has asked for yet.
_TCP = {"FI_PROVIDER": "tcp", "FI_TCP_MAX_SAVED": "65536"}
# More ranks than cores is the rule here: a rank that waits must let others run.
_OPENMPI_COMMON = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_OPENMPI_PLAIN = {
    **_TCP,
    # Open MPI's matched probe fails over tcp; mpi4py would use it in every recv of an object.
    "CHECKS_WITHOUT_MPROBE": "1",
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "tcp",
}
_OPENMPI_OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def debian_names(name: str, *libraries: str) -> Path:
    """A folder with libraries of an MPI of MPICH's family under the names that Debian's MPICH gives them, so that
    programs of its Fortran compiler run with it."""
    folder = ROOT / "build" / "debian-names" / name
    folder.mkdir(parents=True, exist_ok=True)
    for library in libraries:
        link = folder / f"{library.replace('libmpi', 'libmpich')}.so.12"
        # Two runs of tests may come here at once.
        with contextlib.suppress(FileExistsError):
            link.symlink_to(venv(name) / "lib" / f"{library}.so.12")
    return folder


def find(name: str) -> Mpi:
    """The MPI called `name`, or Unavailable."""
    if name == "mpich":
        bin_ = venv("mpich") / "bin"
        return Mpi(
            name,
            [str(bin_ / "mpiexec")],
            str(bin_ / "python"),
            common={},
            env={**_TCP, "MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
            mpicc=str(bin_ / "mpicc"),
            mpifort=shutil.which("mpif90.mpich"),
            fortran={"LD_LIBRARY_PATH": f"{debian_names(name, 'libmpi')}:{venv(name) / 'lib' / 'mpich'}"},
            bin=bin_,
        )
    if name == "openmpi":
        bin_ = venv("openmpi") / "bin"
        return Mpi(
            name,
            [str(bin_ / "mpiexec"), *_OPENMPI_OPTIONS],
            str(bin_ / "python"),
            common=dict(_OPENMPI_COMMON),
            env=dict(_OPENMPI_PLAIN),
            mpicc=str(bin_ / "mpicc"),
            bin=bin_,
        )
    if name == "intel":
        bin_ = venv("impi") / "bin"
        return Mpi(
            name,
            [str(bin_ / "mpiexec")],
            str(bin_ / "python"),
            # As Intel's own setup script does: programs in C find this MPI and the libfabric it came with.
            common={"I_MPI_PIN": "0", "LD_LIBRARY_PATH": str(venv("impi") / "lib")},
            env={**_TCP, "I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp"},
            # The wheel has no compiler wrapper; MPICH's programs ask for the same libmpi.so.12.
            mpicc=str(venv("mpich") / "bin" / "mpicc"),
            mpifort=shutil.which("mpif90.mpich"),
            fortran={"LD_LIBRARY_PATH": f"{debian_names('impi', 'libmpi', 'libmpifort')}:{venv('impi') / 'lib'}"},
            bin=bin_,
        )
    if name == "debian-openmpi":
        mpiexec = shutil.which("mpiexec.openmpi")
        library = next(iter(sorted(Path("/usr/lib").glob("*/libmpi.so.40"))), None)
        if mpiexec is None or library is None:
            raise Unavailable("the distribution's Open MPI is missing: run tools/bootstrap.sh test as root")
        bin_ = venv("debian") / "bin"
        return Mpi(
            name,
            [mpiexec, *_OPENMPI_OPTIONS],
            str(bin_ / "python"),
            common={**_OPENMPI_COMMON, "MPI4PY_LIBMPI": str(library)},
            env=dict(_OPENMPI_PLAIN),
            mpicc=shutil.which("mpicc.openmpi"),
            mpifort=shutil.which("mpif90.openmpi"),
            bin=bin_,
        )
    raise ValueError(f"no MPI is called {name!r}; there are {', '.join(ALL)}")


def clean_environment() -> dict[str, str]:
    """The caller's environment without settings that would steer an MPI or libfabric."""
    steering = ("FI_", "MPIR_", "HYDRA_", "I_MPI_", "OMPI_", "PRTE_", "PMIX_", "PMI_", "GAMBESON_", "UCX_")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}
