"""Encryption maps from Python, C and Fortran: bytes of a file under labels of their own."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from harness.jobs import run_marked
from harness.mpis import ROOT, clean_environment
from harness.programs import Programs
from harness.python import Package
from harness.sealed_files import RULES, Lab

HEADERS = ROOT / "crates" / "gambeson-mpi" / "include"


def two_identities(lab: Lab) -> tuple[Path, Path]:
    """Who may do everything, and who may read what is clinical."""
    mine, theirs = lab.keys("mine", "clinical", "trial"), lab.keys("theirs")
    word, handed = lab.folder / "word", lab.folder / "handed"
    word.touch(0o600)
    word.write_text("correct horse battery\n")
    secret = ["--export-passphrase-file", str(word)]
    lab.tool({"GAMBESON_KEYS": str(mine)}, "key", "export", "--read-only", *secret, str(handed), "clinical")
    lab.tool({"GAMBESON_KEYS": str(theirs)}, "key", "import", *secret, str(handed))
    return mine, theirs


@pytest.mark.parametrize("kind", ["attached", "detached"])
@pytest.mark.parametrize("name", ["a.sealed", "a.plain"])
def test_a_map_puts_bytes_under_a_label_of_their_own(lab: Lab, package: Package, name: str, kind: str) -> None:
    if kind == "detached":
        apart = "detached = true\n"
        (lab.folder / "gambeson.toml").write_text(
            f'{RULES}{apart}[[file]]\npattern = "*.plain"\nlabel = "none"\n{apart}'
        )
    mine, theirs = two_identities(lab)
    file, python = lab.folder / name, {"PYTHONPATH": str(package.folder)}
    written = lab.run("write", str(file), keys=mine, program="encryption_map.py", env=python).check()
    for said in ("unknown label: True", "overlap: True", "data: True", "all: True", "rest: True"):
        assert written.stdout.count(said) == 3, written.describe()
    roles = [mine, theirs, theirs, mine]
    read = lab.run("read", str(file), roles=roles, program="encryption_map.py", env=python).check()
    for rank, store in enumerate(roles):
        assert f"rank {rank} rest: True" in read.stdout, read.describe()
        refused = [line for line in read.stdout.splitlines() if f"rank {rank} refused: True" in line]
        if store == mine:
            assert f"rank {rank} all: True" in read.stdout and not refused, read.describe()
        else:
            assert '"trial"' in refused[0], read.describe()
    shown = json.loads(lab.tool({"GAMBESON_KEYS": str(mine)}, "file", "info", "--json", str(file)))
    rest = [] if name == "a.plain" else ["clinical"]
    assert [region["labels"] for region in shown["regions"]] == [rest, ["trial"]]
    beside = file.with_name(f"{name}.gambeson")
    assert shown["sidecar"] == (str(beside) if kind == "detached" else None) and beside.exists() == (kind == "detached")


def test_a_map_over_a_file_that_no_rule_seals(lab: Lab, package: Package) -> None:
    mine, theirs = two_identities(lab)
    file, python = lab.folder / "a.plain", {"PYTHONPATH": str(package.folder)}
    job = lab.run("view", str(file), keys=mine, program="encryption_map.py", env=python).check()
    assert job.stdout.count("view: True") == 3, job.describe()
    shown = json.loads(lab.tool({"GAMBESON_KEYS": str(mine)}, "file", "info", "--json", str(file)))
    assert [region["labels"] for region in shown["regions"]] == [[], ["trial"], ["clinical"]]
    data = random.Random(5).randbytes(200_000)
    stored = file.read_bytes()
    assert data[350:400] in stored and data[300:325] not in stored and data[325:350] not in stored
    # Somebody else sees what is in clear, and what is under his label.
    lab.tool({}, "file", "open", "--as-user", str(theirs), str(file), str(lab.folder / "seen"))
    seen = (lab.folder / "seen").read_bytes()
    assert seen[300:400] == bytes(25) + data[325:400]


def test_what_lays_no_map_leaves_a_file_in_clear(lab: Lab, package: Package) -> None:
    keys, file = lab.keys("keys", "trial"), lab.folder / "a.plain"
    python = {"PYTHONPATH": str(package.folder)}
    job = lab.run("refused", str(file), keys=keys, program="encryption_map.py", env=python).check()
    for said in ("unknown label: True", "wrong at one: True", "data: True", "reading: True", "sequential: True"):
        assert job.stdout.count(said) == 3, job.describe()
    assert file.stat().st_size == 3000


def test_a_program_without_gambeson_is_told(lab: Lab, package: Package) -> None:
    program = ROOT / "tests" / "programs" / "encryption_map.py"
    command = [*lab.mpi.mpiexec, "-n", "2", lab.mpi.python, str(program), "alone", str(lab.folder / "a.plain")]
    environment = {**clean_environment(), **lab.mpi.common, "PYTHONPATH": str(package.folder)}
    job = run_marked(command, env=environment, timeout=60).check()
    assert job.stdout.count("alone: True") == 2, job.describe()


def test_maps_from_c(lab: Lab, programs: Programs) -> None:
    assert lab.mpi.mpicc
    check_a_program(lab, programs.compile(lab.mpi.mpicc, "encryption_map.c", "-Wall", "-Wextra", includes=HEADERS))


@pytest.mark.mpis("mpich", "intel", "debian-openmpi")
@pytest.mark.parametrize("binding", ["F08", "USE_MPI", "MPIF"])
def test_maps_from_fortran(lab: Lab, programs: Programs, binding: str) -> None:
    if lab.mpi.name == "intel" and binding == "F08":
        pytest.skip("mpi_f08 of the compiler at hand, Debian's, is another than that of Intel's library")
    assert lab.mpi.mpifort
    program = programs.compile(lab.mpi.mpifort, "encryption_map.f90", "-cpp", f"-D{binding}", includes=HEADERS)
    check_a_program(lab, program, lab.mpi.fortran)


def check_a_program(lab: Lab, program: Path, environment: dict[str, str] | None = None) -> None:
    """What encryption_map.c and encryption_map.f90 do."""
    keys = lab.keys("keys", "clinical", "trial")
    sealed, plain = lab.folder / "a.sealed", lab.folder / "a.plain"
    job = lab.run(str(sealed), keys=keys, program=program, env=environment).check()
    assert job.stdout.count("map laid, right") == 3, job.describe()
    shown = json.loads(lab.tool({"GAMBESON_KEYS": str(keys)}, "file", "info", "--json", str(sealed)))
    rest, trial = shown["regions"]
    assert rest["labels"] == ["clinical"] and trial["labels"] == ["trial"] and shown["block"] == 4096
    fifty = [{"offset": 0, "length": 50}]
    found = [(part["displacement"], part["extent"], part["pieces"]) for part in trial["parts"]]
    assert found == [(0, 300, fifty), (100, 300, fifty), (200, 300, fifty)]
    # Who starts it without Gambeson is told.
    alone = [*lab.mpi.mpiexec, "-n", "3", str(program), str(plain)]
    told = run_marked(alone, env={**clean_environment(), **lab.mpi.common, **(environment or {})}, timeout=60).check()
    assert told.stdout.count("map unsupported, right") == 3, told.describe()
