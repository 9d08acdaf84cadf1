"""The guard: whatever starts MPI without the provider stops, whatever doesn't is left alone."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import Mpi, clean_environment
from harness.programs import Programs

LAUNCHERS_OWN = "job"


@pytest.fixture(scope="session")
def guard(gambeson: Path) -> Path:
    beside = gambeson.resolve().parent
    return next(path for path in (beside / "libgambeson_guard.so", beside / "libgambeson-guard.so") if path.exists())


@pytest.fixture
def job_directory(tmp_path: Path) -> Path:
    directory = tmp_path / LAUNCHERS_OWN
    directory.mkdir(mode=0o700)
    (directory / "environment").write_text("")
    return directory


def unsealed(
    mpi: Mpi, program: list[str], guard: Path, directory: Path | None, env: Mapping[str, str] | None = None
) -> Job:
    """A job under the guard with nothing that would load the provider."""
    environment = {**clean_environment(), **mpi.common, "LD_PRELOAD": str(guard), **(env or {})}
    if directory:
        environment["GAMBESON_JOB"] = str(directory)
    return run_marked([*mpi.mpiexec, "-n", "2", *program], env=environment, timeout=60)


def assert_refused(job: Job, directory: Path, cause: str) -> None:
    assert not job.timed_out, job.describe()
    assert job.status != 0, job.describe()
    assert "started" not in job.stdout, job.describe()
    assert cause in job.stderr, job.describe()
    assert not job.survivors, job.describe()
    refused = [path.read_text() for path in directory.glob("refused-*")]
    assert any(cause in text for text in refused), refused
    assert any(text.startswith("rank ") for text in refused), refused
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in directory.glob("*-[0-9]*"))


@pytest.mark.parametrize("how", ["init", "thread", "profiler"])
def test_c_program_is_stopped(mpi: Mpi, programs: Programs, guard: Path, job_directory: Path, how: str) -> None:
    assert mpi.mpicc
    program = programs.compile(mpi.mpicc, "start.c")
    job = unsealed(mpi, [str(program), how], guard, job_directory)
    assert_refused(job, job_directory, "its messages would not be sealed")
    assert "did not load the provider" in job.stderr, job.describe()


def test_mpi4py_program_is_stopped(mpi: Mpi, programs: Programs, guard: Path, job_directory: Path) -> None:
    job = unsealed(mpi, [mpi.python, str(programs.path("start.py"))], guard, job_directory)
    assert_refused(job, job_directory, "its messages would not be sealed")


@pytest.mark.mpis("debian-openmpi")
@pytest.mark.parametrize("how", ["init", "thread"])
@pytest.mark.parametrize("source", ["start_f08.f90", "start_mpifh.f90"])
def test_fortran_program_is_stopped(
    mpi: Mpi, programs: Programs, guard: Path, job_directory: Path, source: str, how: str
) -> None:
    assert mpi.mpifort
    program = programs.compile(mpi.mpifort, source)
    job = unsealed(mpi, [str(program), how], guard, job_directory)
    assert_refused(job, job_directory, "its messages would not be sealed")


def test_changed_environment_is_named_before_mpi_starts(
    mpi: Mpi, programs: Programs, guard: Path, job_directory: Path
) -> None:
    (job_directory / "environment").write_text("FI_PROVIDER=gambeson\n")
    job = unsealed(mpi, [mpi.python, str(programs.path("start.py"))], guard, job_directory, {"FI_PROVIDER": "tcp"})
    assert_refused(job, job_directory, 'FI_PROVIDER is "tcp", and sealing needs "gambeson"')


def test_unreadable_job_directory_is_named(mpi: Mpi, programs: Programs, guard: Path, tmp_path: Path) -> None:
    job = unsealed(mpi, [mpi.python, str(programs.path("start.py"))], guard, tmp_path / "gone")
    assert job.status != 0
    assert f"{tmp_path}/gone/environment cannot be read" in job.stderr, job.describe()


def test_windows_that_bypass_the_provider_are_refused(
    mpi: Mpi, programs: Programs, guard: Path, job_directory: Path, tmp_path: Path
) -> None:
    (job_directory / "one-sided").write_text("it is in clear here\nUse another MPI\n")
    provider = stand_in_provider(tmp_path, endpoints=1)
    env = {"LD_PRELOAD": f"{guard}:{provider}"}
    job = unsealed(mpi, [mpi.python, str(programs.path("window.py"))], guard, job_directory, env)
    assert job.status != 0
    assert "makes a window, and it is in clear here. Use another MPI." in job.stderr, job.describe()
    assert "found" not in job.stdout


@pytest.mark.parametrize(("level", "refused"), [("multiple", True), ("serialized", False)])
def test_windows_may_be_refused_to_threads_alone(
    mpi: Mpi, programs: Programs, guard: Path, job_directory: Path, tmp_path: Path, level: str, refused: bool
) -> None:
    (job_directory / "one-sided-threads").write_text("it is in clear with threads\nUse fewer\n")
    provider = stand_in_provider(tmp_path, endpoints=1)
    env = {"LD_PRELOAD": f"{guard}:{provider}", "MPI4PY_RC_THREAD_LEVEL": level}
    job = unsealed(mpi, [mpi.python, str(programs.path("window.py"))], guard, job_directory, env)
    assert ("it is in clear with threads. Use fewer." in job.stderr) == refused, job.describe()
    assert (job.stdout.count("found") == 2) == (not refused), job.describe()


@pytest.mark.parametrize("endpoints", [0, 1])
def test_only_an_endpoint_of_the_job_satisfies(
    mpi: Mpi, programs: Programs, guard: Path, job_directory: Path, tmp_path: Path, endpoints: int
) -> None:
    provider = stand_in_provider(tmp_path, endpoints)
    env = {"LD_PRELOAD": f"{guard}:{provider}"}
    job = unsealed(mpi, [mpi.python, str(programs.path("start.py"))], guard, job_directory, env)
    if endpoints:
        job.check()
        assert job.stdout.count("started") == 2, job.describe()
        assert len(list(job_directory.glob("started-*"))) == 2
    else:
        assert_refused(job, job_directory, "MPI opened no endpoint of it")


def test_outside_a_job_nothing_happens(mpi: Mpi, programs: Programs, guard: Path) -> None:
    job = unsealed(mpi, [mpi.python, str(programs.path("start.py"))], guard, None).check()
    assert job.stdout.count("started") == 2, job.describe()


def test_other_programs_are_left_alone(guard: Path, tmp_path: Path) -> None:
    env = {**clean_environment(), "LD_PRELOAD": str(guard), "GAMBESON_JOB": str(tmp_path / "gone")}
    shell = "echo one; ls / >/dev/null; python3 -c 'print(2)'"
    done = subprocess.run(["bash", "-c", shell], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("one\n2\n", "")
    assert not (tmp_path / "gone").exists()


def test_a_program_that_brings_no_mpi_is_told_so(guard: Path, job_directory: Path) -> None:
    call = "import ctypes; ctypes.CDLL(None).MPI_Init(None, None)"
    env = {**clean_environment(), "LD_PRELOAD": str(guard), "GAMBESON_JOB": str(job_directory)}
    done = subprocess.run(["python3", "-c", call], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 70
    assert "no MPI library with the function MPI_Init is loaded" in done.stderr


def stand_in_provider(folder: Path, endpoints: int) -> Path:
    """A library under the provider's name that says how many endpoints it has opened."""
    source = folder / "provider.c"
    source.write_text(f"unsigned long gambeson_endpoints_open(void) {{ return {endpoints}; }}\n")
    library = folder / "libgambeson-fi.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library
