"""PnetCDF's tests, built by its own makefiles from the distribution's source, against a shared library.

They run as `make ptest` runs them, those of nc_test as `make check` does: on one rank. What a test leaves is looked at
by PnetCDF's validator, sealed files after `gambeson file open`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from conformance.sealing import MEMORY, Sealing, unsealed
from conformance.sources import BUILD, sources
from conformance.suites import Result
from harness.jobs import Job, Runner
from harness.mpis import Mpi, Unavailable, clean_environment

FOLDERS = {
    "testcases": (
        *("ncmpi_vars_null_stride", "vectors", "collective_error", "test_varm", "alignment_test", "flexible"),
        *("flexible2", "flexible_varm", "nonblocking", "noclobber", "record", "inq_num_vars", "varn_int", "modes"),
        *("one_record", "inq_recsize", "test_vard", "test_vard_rec", "test_vard_multiple", "varn_contig", "ivarn"),
        *("check_striping", "add_var", "buftype_free", "last_large_var", "check_type", "test_erange", "scalar"),
        *("null_args", "tst_dimsizes", "mix_collectives", "large_var_cdf5", "tst_max_var_dims", "tst_info"),
        *("tst_vars_fill", "tst_def_var_fill", "test_fillvalue", "error_precedence", "tst_free_comm", "erange_fill"),
        *("put_all_kinds", "redef1", "iput_all_kinds", "tst_version"),
    ),
    "nonblocking": (
        *("test_bput", "interleaved", "i_varn_int64", "flexible_bput", "wait_after_indep", "req_all"),
        *("i_varn_indef", "large_num_reqs", "bput_varn", "column_wise", "mcoll_perf"),
    ),
    "C": ("pres_temp_4D_wr", "pres_temp_4D_rd"),
    "nc_test": (
        *("t_nc", "tst_misc", "tst_norm", "tst_small", "tst_names", "tst_atts3", "tst_atts", "tst_nofill"),
        *("nc_test", "nc_test -2", "nc_test -5"),
    ),
}
"""The programs by folder; nc_test with the format that it is to write. Those in Fortran are left out."""
WRITTEN_BY = {"pres_temp_4D_rd": "pres_temp_4D_wr"}
"""A test that reads what another one has written."""
WITHOUT_FILES = {"tst_version"}
TIME_LIMIT_S = 300.0


def pnetcdf(mpi: Mpi) -> Path:
    """The folder in which PnetCDF is built for this MPI, once. Intel MPI runs what is built for MPICH."""
    folder = BUILD / f"pnetcdf-for-{'mpich' if mpi.name == 'intel' else mpi.name}"
    if (folder / "is-built").is_file():
        return folder
    if not shutil.which("autoreconf"):
        raise Unavailable("PnetCDF is built with autoconf, automake and libtool: run tools/bootstrap.sh conformance")
    source = sources("pnetcdf")
    environment = {**clean_environment(), **mpi.common, "MPICC": str(mpi.mpicc)}

    def do(*words: str | Path, where: Path = folder) -> None:
        command = [str(word) for word in words]
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"

    if not (source / "configure").is_file():
        do("autoreconf", "-i", where=source)
    folder.mkdir(parents=True, exist_ok=True)
    only = ["--disable-fortran", "--disable-cxx", "--enable-shared", "--disable-static"]
    do(source / "configure", *only, "--disable-dependency-tracking", "CFLAGS=-O1 -w")
    make = ["make", f"-j{os.cpu_count() or 1}"]
    do(*make, "-C", "src")
    for tests in ("common", *FOLDERS):
        # Programs, not libtool's scripts in front of them.
        do(*make, "-C", f"test/{tests}", "tests-local", "LDFLAGS=-no-install")
    (folder / "is-built").touch()
    return folder


@dataclass
class Tests:
    """The tests of one folder, each in a folder of its own."""

    runner: Runner
    mpi: Mpi
    ranks: int
    build: Path
    tests: str
    result: Result = field(init=False)

    def __post_init__(self) -> None:
        self.result = Result("pnetcdf", self.mpi.name, self.ranks, not self.runner.plain)

    def run(self, test: str) -> None:
        name = f"{self.tests} {test}"
        before = self.runner.sealed_files() if isinstance(self.runner, Sealing) else 0
        with tempfile.TemporaryDirectory(dir=MEMORY) as place:
            if test in WRITTEN_BY:
                self._start(WRITTEN_BY[test], Path(place))
            job = self._start(test, Path(place))
            outcome = "hang" if job.timed_out else "ok" if job.status == 0 else "failed"
            if outcome == "ok" and test not in WITHOUT_FILES and unsealed(self.runner, before):
                outcome = "failed"
                self.result.notes.append(f"{self.result.key}: {name}: no file was sealed")
            elif outcome != "ok":
                self.result.note(name, outcome, job)
            elif wrong := "; ".join(filter(None, map(self._invalid, sorted(Path(place).iterdir())))):
                outcome = "failed"
                self.result.notes.append(f"{self.result.key}: {name}: {wrong}")
        self.result.outcomes[name] = outcome

    def _start(self, test: str, place: Path) -> Job:
        program, *options = test.split()
        words = [str(self.build / "test" / self.tests / program), *options]
        if program == "nc_test":
            words += ["-d", str(place)]
        elif test not in WITHOUT_FILES:
            # Who reads a file is told the name of who wrote it.
            words.append(str(place / f"{program.removesuffix('_rd').removesuffix('_wr')}.nc"))
        ranks = 1 if self.tests == "nc_test" else self.ranks
        return self.runner.run(self.mpi, words, n=ranks, cwd=place, timeout=TIME_LIMIT_S)

    def _invalid(self, path: Path) -> str:
        """What is wrong with a file that a test has left."""
        validator = [str(self.build / "src" / "utils" / "ncvalidator" / "ncvalidator"), "-q"]
        if not isinstance(self.runner, Sealing):
            return complaint([*validator, str(path)])
        opened = path.with_name(f"{path.name}.opened")
        opening = [str(self.runner.gambeson), "file", "open", str(path), str(opened)]
        return complaint(opening, self.runner.keys) or complaint([*validator, str(opened)])


def complaint(command: list[str], more: dict[str, str] | None = None) -> str:
    environment = {**clean_environment(), **(more or {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"{command[0]}: {done.returncode}"


def run_pnetcdf(runner: Runner, mpi: Mpi, ranks: int, folder: str, only: str = "") -> Result:
    started = time.monotonic()
    tests = Tests(runner, mpi, ranks, pnetcdf(mpi), folder)
    for test in [only] if only else FOLDERS[folder]:
        tests.run(test)
    tests.result.seconds = time.monotonic() - started
    return tests.result
