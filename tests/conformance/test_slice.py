"""A representative part of the foreign suites, sealed, in every test run; all of it is `make conformance`.

What fails without Gambeson is recorded in plain.json.
"""

from __future__ import annotations

import pytest
from conformance.files import run_files
from conformance.record import PAGE, Record, page
from conformance.suites import IMB, Outcomes, Result, run_imb, run_mpi4py, run_operations
from harness import hdf5
from harness.jobs import Runner
from harness.mpis import Mpi, Unavailable

# One module per kind of operation, those that exercise most of the provider.
MODULES = [
    "test_p2p_buf",
    "test_p2p_buf_matched",
    "test_p2p_obj",
    "test_p2p_obj_matched",
    "test_request",
    "test_cco_buf",
    "test_cco_nb_vec",
    "test_cco_obj_inter",
    "test_cco_ngh_buf",
    "test_comm",
    "test_util_pkl5",
    "test_threads",
]
ONE_SIDED = ["test_win", "test_rma", "test_rma_nb"]


def known(suite: str, mpi: Mpi, ranks: int) -> Outcomes:
    return Record.load("plain").not_ok(f"{suite} {mpi.name} {ranks}")


def check(result: Result) -> None:
    expected = Record.load("plain").not_ok(result.key)
    worse = {name: outcome for name, outcome in result.not_ok.items() if name not in expected}
    assert not worse, f"{result.key}: {worse}\n" + "\n".join(result.notes)
    assert result.names("ok"), f"{result.key}: no test ran"


def test_page() -> None:
    """The page says what was recorded; run.py --write makes it so."""
    assert PAGE.read_text() == page(Record.load("plain"), Record.load("sealed"))


@pytest.mark.timeout(900)
@pytest.mark.mpis("mpich")
def test_mpi4py(mpi: Mpi, runner: Runner) -> None:
    check(run_mpi4py(runner, mpi, 2, MODULES, known=known("mpi4py", mpi, 2)))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.mpis("openmpi", "intel")
def test_mpi4py_elsewhere(mpi: Mpi, runner: Runner) -> None:
    """Needs plain.json: Open MPI hangs in persistent sends to oneself, among others, without Gambeson too."""
    check(run_mpi4py(runner, mpi, 2, MODULES, known=known("mpi4py", mpi, 2)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.mpis("mpich", "intel")
def test_mpi4py_one_sided(mpi: Mpi, runner: Runner) -> None:
    check(run_mpi4py(runner, mpi, 2, ONE_SIDED, known=known("mpi4py", mpi, 2)))


def imb(name: str, mpi: Mpi, runner: Runner) -> Result:
    return run_imb(runner, mpi, 2, next(imb for imb in IMB if imb.name == name), known(name, mpi, 2))


@pytest.mark.timeout(600)
@pytest.mark.mpis("mpich", "intel")
@pytest.mark.parametrize("name", ["IMB-RMA", "IMB-MT"])
def test_imb(mpi: Mpi, runner: Runner, name: str) -> None:
    check(imb(name, mpi, runner))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.mpis("mpich", "intel")
@pytest.mark.parametrize("name", ["IMB-MPI1", "IMB-P2P", "IMB-NBC"])
def test_imb_long(mpi: Mpi, runner: Runner, name: str) -> None:
    check(imb(name, mpi, runner))


@pytest.mark.timeout(600)
@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
def test_operations(mpi: Mpi, runner: Runner) -> None:
    check(run_operations(runner, mpi, 2, known("operations", mpi, 2)))


@pytest.mark.timeout(300)
def test_files_of_mpi4py(mpi: Mpi, runner: Runner) -> None:
    check(run_files(runner, mpi, 2, "mpi4py-files", "test_file"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_access_to_files_of_mpi4py(mpi: Mpi, runner: Runner) -> None:
    check(run_files(runner, mpi, 2, "mpi4py-files", "test_io", known("mpi4py-files", mpi, 2)))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("test", ["cdsetr", "cchunk3", "selnone"])
def test_files_of_hdf5(mpi: Mpi, runner: Runner, test: str) -> None:
    try:
        hdf5.library(mpi)
    except Unavailable as reason:
        pytest.skip(str(reason))
    check(run_files(runner, mpi, 4, "hdf5", "testphdf5", only=test))
