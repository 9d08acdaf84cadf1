"""Files that MPI programs write under `gambeson run`: sealed by the policy's rules, and as they were to the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.jobs import run_marked
from harness.mpis import clean_environment, venv
from harness.programs import Programs
from harness.sealed_files import RULES, Lab

CANARY = b"canary: patient 0815"


def test_a_program_writes_and_reads_sealed_files(lab: Lab) -> None:
    keys = lab.keys("keys", "clinical")
    sealed, plain = lab.folder / "a.sealed", lab.folder / "a.plain"
    for file in (sealed, plain):
        for action in ("write", "read"):
            job = lab.run(action, str(file), keys=keys).check()
            assert "done" in job.stdout, job.describe()
    assert CANARY in plain.read_bytes()
    assert CANARY not in sealed.read_bytes()
    # Another number of ranks reads what was written.
    assert "rank 4" in lab.run("refused", str(sealed), keys=keys, n=5).check().stdout


def test_a_rank_sees_at_once_what_it_wrote_with_others(lab: Lab) -> None:
    # Others have merged it into blocks: HDF5 reads what it has just written.
    keys = lab.keys("keys", "clinical")
    assert "done" in lab.run("own", str(lab.folder / "a.sealed"), keys=keys, n=4).check().stdout


def test_what_nobody_wrote_between_records_stays_empty(lab: Lab) -> None:
    # ROMIO writes gaps back as it has read them, or has not where the file had ended.
    keys = lab.keys("keys", "clinical")
    assert "done" in lab.run("gaps", str(lab.folder / "a.sealed"), keys=keys, n=4).check().stdout


def test_handles_stand_beside_each_other(lab: Lab) -> None:
    keys = lab.keys("keys", "clinical")
    sealed = lab.folder / "a.sealed"
    assert "done" in lab.run("handles", str(sealed), keys=keys, n=4).check().stdout
    lab.tool({"GAMBESON_KEYS": str(keys)}, "file", "verify", str(sealed))


def test_each_rank_acts_under_its_own_identity(lab: Lab) -> None:
    mine, theirs = lab.keys("mine", "clinical"), lab.keys("theirs", "trial")
    sealed = lab.folder / "a.sealed"
    lab.run("write", str(sealed), keys=mine).check()
    job = lab.run("refused", str(sealed), roles=[mine, theirs, mine]).check()
    for rank in (0, 2):
        assert f"rank {rank} read {CANARY!r}" in job.stdout, job.describe()
    # Launchers mix the ranks' lines.
    said = job.stdout.partition("rank 1 class True")[2]
    assert 'label "clinical"' in said and "region 0" in said, job.describe()
    nobody = lab.run("refused", str(sealed), keys=theirs).check()
    # The middle is left out of a sentence that is longer than what MPI takes, as with a long path.
    assert nobody.stdout.count("no label of it is ") == 3, nobody.describe()


def test_a_killed_job_costs_nothing_where_blocks_have_two_slots(lab: Lab) -> None:
    keys = lab.keys("keys", "clinical")
    (lab.folder / "gambeson.toml").write_text(RULES + "slots = 2\n")
    sealed = lab.folder / "a.sealed"
    lab.run("write", str(sealed), keys=keys).check()
    assert lab.run("killed", str(sealed), keys=keys).status != 0
    store = {"GAMBESON_KEYS": str(keys)}
    # It is as it was closed last, for readers and for the next writer; then what was newer is asked for.
    lab.run("read", str(sealed), keys=keys).check()
    assert CANARY.decode() in lab.tool(store, "file", "cat", str(sealed), "--length", "20")
    lab.tool(store, "file", "accept", str(sealed))
    assert lab.tool(store, "file", "cat", str(sealed), "--length", "20") == "\0" * 20
    lab.tool(store, "file", "verify", str(sealed))


def test_what_reads_may_not_write(lab: Lab) -> None:
    mine, theirs = lab.keys("mine", "clinical"), lab.keys("theirs")
    sealed = lab.folder / "a.sealed"
    lab.run("write", str(sealed), keys=mine).check()
    word = lab.folder / "word"
    word.touch(0o600)
    word.write_text("correct horse battery\n")
    handed = lab.folder / "handed"
    lab.tool(
        {"GAMBESON_KEYS": str(mine)},
        "key",
        "export",
        "--read-only",
        "--export-passphrase-file",
        str(word),
        str(handed),
        "clinical",
    )
    lab.tool({"GAMBESON_KEYS": str(theirs)}, "key", "import", "--export-passphrase-file", str(word), str(handed))
    assert lab.run("refused", str(sealed), keys=theirs).check().stdout.count(repr(CANARY)) == 3
    job = lab.run("refused", str(sealed), "write", keys=theirs)
    assert "no rank has a key that may write" in job.output and "class True" in job.stdout, job.describe()


def test_a_plain_file_is_not_taken_for_a_sealed_one(lab: Lab) -> None:
    keys = lab.keys("keys", "clinical")
    (lab.folder / "a.sealed").write_bytes(b"x" * 1000)
    job = lab.run("refused", str(lab.folder / "a.sealed"), keys=keys)
    assert "gambeson file seal" in job.stdout and 'label "clinical"' in job.stdout, job.describe()
    without = lab.run("write", str(lab.folder / "b.sealed"))
    assert without.status != 0 and "make one with `gambeson key init`" in without.output, without.describe()


def test_a_refused_file_is_an_error_as_programs_in_c_have_it(lab: Lab, programs: Programs) -> None:
    # Open MPI ends a program that calls the handler of MPI_FILE_NULL by name.
    assert lab.mpi.mpicc
    keys = lab.keys("keys", "clinical")
    (lab.folder / "a.sealed").write_bytes(b"in clear")
    job = lab.run(str(lab.folder / "a.sealed"), program=programs.compile(lab.mpi.mpicc, "refused.c"), keys=keys, n=2)
    job.check()
    for who in ("returned", "handler", "returned again"):
        assert job.stdout.count(f"{who}: MPI_ERR_ACCESS: ") == 2, job.describe()
    assert "it is in clear; seal it with" in job.stdout


def test_the_policy_says_which_files_are_sealed(lab: Lab) -> None:
    said = lab.tool({}, "policy", "check", "--policy", "gambeson.toml", "--file", "x.sealed", "--file", "x.h5")
    assert 'x.sealed  sealed under "clinical"' in said and "x.h5  in clear: no rule matches" in said, said
    report = json.loads(lab.tool({}, "policy", "check", "--policy", "gambeson.toml", "--json", "--file", "x.sealed"))
    assert report["sealed_files"][0]["rule"]["label"] == "clinical"
    assert Path(report["sealed_files"][0]["path"]).name == "x.sealed"
    # Neither the name of a link to it nor a way around leads past a rule.
    (lab.folder / "inner").mkdir()
    (lab.folder / "policy.toml").write_text(
        f'[[file]]\npattern = "{lab.folder.resolve()}/inner/**"\nlabel = "clinical"\n'
    )
    (lab.folder / "policy.toml").chmod(0o600)
    (lab.folder / "link").symlink_to("inner/x")
    for path in ("inner/x", "inner/../inner/x", "link"):
        said = lab.tool({}, "policy", "check", "--policy", "policy.toml", "--file", path)
        assert 'sealed under "clinical"' in said.splitlines()[-1], said


@pytest.mark.mpis("debian-openmpi")
@pytest.mark.parametrize("binding", ["F08", "USE_MPI", "MPIF"])
def test_fortran_programs_write_sealed_files(lab: Lab, programs: Programs, binding: str) -> None:
    assert lab.mpi.mpifort
    program = programs.compile(lab.mpi.mpifort, "files.f90", "-cpp", f"-D{binding}")
    keys = lab.keys("keys", "clinical")
    for name in ("a.sealed", "a.plain"):
        job = lab.run(str(lab.folder / name), keys=keys, program=program).check()
        assert job.stdout.count("found what was written") == 3, job.describe()
    assert (lab.folder / "a.sealed").read_bytes().startswith(b"GMBSNFIL")
    # Twice 1000 integers of each of three ranks.
    assert (lab.folder / "a.plain").stat().st_size == 24000


@pytest.mark.mpis("mpich", "intel")
def test_programs_of_the_standard_abi_write_sealed_files(lab: Lab, programs: Programs) -> None:
    # One program for both: MPICH's compiler links it with libmpi_abi.so.1, which Intel MPI has, too.
    program = programs.compile(str(venv("mpich") / "bin" / "mpicc_abi"), "files_abi.c")
    keys = lab.keys("keys", "clinical")
    environment = {**clean_environment(), **lab.mpi.common, "HOME": str(lab.folder), "GAMBESON_KEYS": str(keys)}
    options = ["run", "--quiet", "--policy", str(lab.folder / "gambeson.toml"), "--", *lab.mpi.mpiexec, "-n", "3"]
    for name in ("a.sealed", "a.plain"):
        command = [str(lab.gambeson), *options, str(program), str(lab.folder / name)]
        job = run_marked(command, env=environment, timeout=60, cwd=lab.folder).check()
        assert job.stdout.count("found what was written") == 3, job.describe()
    assert (lab.folder / "a.sealed").read_bytes().startswith(b"GMBSNFIL")
    assert (lab.folder / "a.plain").stat().st_size == 4 * 30_000 * 3


@pytest.mark.mpis("debian-openmpi")
def test_pnetcdf_opens_what_it_has_written(lab: Lab, programs: Programs) -> None:
    if not Path("/usr/include/pnetcdf.h").is_file():
        pytest.skip("PnetCDF is missing: run tools/bootstrap.sh conformance as root, which installs libpnetcdf-dev")
    assert lab.mpi.mpicc
    program = programs.compile(lab.mpi.mpicc, "netcdf.c", "-lpnetcdf")
    keys = lab.keys("keys", "clinical")
    environment = {**clean_environment(), **lab.mpi.common, "HOME": str(lab.folder), "GAMBESON_KEYS": str(keys)}
    options = ["run", "--quiet", "--policy", str(lab.folder / "gambeson.toml"), "--", *lab.mpi.mpiexec, "-n", "3"]
    for name, begin in (("a.sealed", b"GMBSNFIL"), ("a.plain", b"CDF")):
        command = [str(lab.gambeson), *options, str(program), str(lab.folder / name)]
        job = run_marked(command, env=environment, timeout=60, cwd=lab.folder).check()
        assert job.stdout.count("found what was written") == 3, job.describe()
        assert (lab.folder / name).read_bytes().startswith(begin)
