"""What programs see of MPI messages must not change when they are sealed, on any MPI.

Each program under tests/programs is one job of many named checks; the last `begin` in its output names the one that
failed or hung. With --plain the same jobs run without Gambeson, but for what fails there by itself (PLAIN_FAILS).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from harness.jobs import Job
from harness.mpis import ALL, Mpi
from harness.programs import Programs

RunJob = Callable[..., Job]

PLAIN_FAILS: dict[tuple[str, str], tuple[str, ...]] = {
    # libfabric's tcp never completes a message that meets an empty buffer.
    ("matching", "truncation_to_nothing_posted"): ALL,
    ("matching", "truncation_to_nothing_unexpected"): ALL,
    # The rxm of libfabric 1.17 loses truncated messages.
    ("matching", "truncation_small_posted"): ("debian-openmpi",),
    ("matching", "truncation_small_unexpected"): ("debian-openmpi",),
    # Open MPI 5.0's matched probe over tcp: "known error not in list".
    ("matching", "matched_probe"): ("openmpi",),
    ("matching", "claimed_messages_keep_until_received"): ("openmpi",),
    ("threads", "probes_between_threads"): ("openmpi",),
    # The rxm of libfabric 1.17 runs out of receives.
    ("volume", "outstanding_5000"): ("debian-openmpi",),
    ("volume", "outstanding_wildcards_5000"): ("debian-openmpi",),
    # Open MPI 4.1's osc component crashes in MPI_Compare_and_swap.
    ("one_sided", "atomics"): ("debian-openmpi",),
}

SEALED_REFUSES: dict[tuple[str, str], tuple[str, ...]] = {
    # Open MPI 5 moves one-sided data past libfabric; see test_windows_are_refused_on_open_mpi_5.
    ("mixed", "with_one_sided"): ("openmpi",),
}

EVERYWHERE = pytest.mark.mpis(*ALL)


def expect_all_ok(job: Job) -> None:
    if job.status != 0 or job.timed_out:
        begun = re.findall(r"^begin (\w+)", job.stdout, re.M)
        print(f"the last check begun: {begun[-1] if begun else 'none'}")
    job.check()
    assert "all ok" in job.stdout, job.describe()


@pytest.fixture
def run_checks(run_job: RunJob, programs: Programs, plain: bool) -> Callable[..., None]:
    """Runs one program of named checks to its end."""

    def run(mpi: Mpi, name: str, n: int, *arguments: str, timeout: float = 150) -> None:
        table = PLAIN_FAILS if plain else SEALED_REFUSES
        skipped = [check for (program, check), mpis in table.items() if program == name and mpi.name in mpis]
        words = [programs.path(f"{name}.py"), *arguments]
        if skipped:
            words += ["--skip", ",".join(skipped)]
        expect_all_ok(run_job(mpi, words, n=n, timeout=timeout))

    return run


RunChecks = Callable[..., None]


@EVERYWHERE
def test_every_size(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "sizes", 2)


@EVERYWHERE
def test_matching(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "matching", 3)


@EVERYWHERE
def test_derived_datatypes(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "datatypes", 2)


@EVERYWHERE
@pytest.mark.parametrize("n", [2, 3, 4])
def test_collectives(mpi: Mpi, run_checks: RunChecks, n: int) -> None:
    run_checks(mpi, "collectives", n)


@EVERYWHERE
def test_volume(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "volume", 3)


@EVERYWHERE
def test_threads(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "threads", 2)


@pytest.mark.mpis("mpich", "intel", "debian-openmpi")
def test_one_sided(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "one_sided", 3)


@pytest.mark.mpis("openmpi")
def test_windows_are_refused_on_open_mpi_5(mpi: Mpi, run_job: RunJob, programs: Programs, plain: bool) -> None:
    """Its one-sided data would pass in clear: the job stops before the first window, and says what to do."""
    job = run_job(mpi, [programs.path("one_sided.py")], n=2)
    if plain:
        expect_all_ok(job)
        return
    assert job.status == 70, job.describe()
    assert "would not be sealed" in job.stderr and "Use MPICH" in job.stderr, job.describe()
    assert "ok fence_put_get" not in job.stdout
    assert not job.survivors


@EVERYWHERE
@pytest.mark.parametrize("seed", [1, 2])
def test_mixture(mpi: Mpi, run_checks: RunChecks, seed: int) -> None:
    run_checks(mpi, "mixed", 3, "--seed", str(seed))


@EVERYWHERE
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("seed", range(10, 20))
def test_more_mixtures(mpi: Mpi, run_checks: RunChecks, n: int, seed: int) -> None:
    run_checks(mpi, "mixed", n, "--seed", str(seed), timeout=300)


@pytest.mark.mpis("mpich", "openmpi", "intel")
def test_partitioned(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "partitioned", 2)


@EVERYWHERE
def test_sixteen_ranks(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "many_ranks", 16)


@EVERYWHERE
@pytest.mark.long
@pytest.mark.timeout(900)
def test_sixty_four_ranks(mpi: Mpi, run_checks: RunChecks) -> None:
    run_checks(mpi, "many_ranks", 64, timeout=800)


@pytest.mark.mpis("mpich", "openmpi", "debian-openmpi")
def test_spawn(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    """Intel MPI does not spawn over plain tcp either."""
    expect_all_ok(run_job(mpi, [programs.path("spawn.py")], n=2))


@EVERYWHERE
def test_threads_in_c(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    assert mpi.mpicc
    program = programs.compile(mpi.mpicc, "threads.c", "-pthread")
    expect_all_ok(run_job(mpi, [program], n=3))


@EVERYWHERE
def test_a_c_program_computes_the_same(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    assert mpi.mpicc
    program = programs.compile(mpi.mpicc, "stencil.c", "-lm")
    alone = run_job(mpi, [program], n=1).check()
    assert alone.stdout.startswith("checksum ")
    assert run_job(mpi, [program], n=4).check().stdout == alone.stdout


@pytest.mark.mpis("debian-openmpi")
def test_fortran(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    assert mpi.mpifort
    expect_all_ok(run_job(mpi, [programs.compile(mpi.mpifort, "messages.f90")], n=3))


@pytest.mark.mpis("debian-openmpi")
def test_coarrays(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    """Coarrays are one-sided MPI underneath."""
    expect_all_ok(run_job(mpi, [programs.compile("caf", "coarrays.f90")], n=3))


@EVERYWHERE
@pytest.mark.namespaces
def test_messages_pass_over_ipv6(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    """The one interface that core tcp may use has no other address; launchers keep the loopback."""
    network = "ip link set lo up && ip link add v6 type veth peer name other && ip link set v6 addrgenmode none"
    network += " && ip link set other up && ip link set v6 up && ip addr add fd00::1/64 dev v6 nodad"
    prefix = ["unshare", "-n", "bash", "-c", network + ' && exec "$@"', "sh"]
    expect_all_ok(run_job(mpi, [programs.path("over_ipv6.py")], prefix=prefix, env={"FI_TCP_IFACE": "v6"}))


def test_output_input_and_status_pass_through(mpi: Mpi, run_job: RunJob, programs: Programs) -> None:
    job = run_job(mpi, [programs.path("through.py"), "3"], n=2, stdin="a line\nanother\n")
    assert "rank 0 read: a line|another" in job.stdout
    assert "rank 1 to stderr" in job.stderr
    assert job.status == 3, job.describe()
    assert not job.survivors
