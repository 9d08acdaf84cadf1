"""Detached files through MPI: the data where the program wrote it, and all else in a sidecar that goes with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness.jobs import Job
from harness.sealed_files import RULES, Lab

PROGRAM = "detached_files.py"
CANARY = b"canary: patient 0815"
BLOCK = 64 << 10


@pytest.fixture
def detached(lab: Lab) -> Lab:
    (lab.folder / "gambeson.toml").write_text(RULES + "detached = true\n")
    return lab


def sidecar(file: Path) -> Path:
    return file.with_name(f"{file.name}.gambeson")


def said(job: Job, what: str) -> list[str]:
    """What the ranks say of something, in order of rank."""
    lines = sorted(line for line in job.stdout.splitlines() if f" {what}: " in line)
    return [line.partition(f" {what}: ")[2] for line in lines]


def holes(file: Path) -> list[tuple[int, int]]:
    """Where there is something in a file, by the file system's word."""
    found = []
    descriptor = os.open(file, os.O_RDONLY)
    try:
        end, at = os.fstat(descriptor).st_size, 0
        while at < end:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            found.append((start, at))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return found


# Intel MPI's driver for NFS, which it takes here, now and then refuses to read the last, short block (docs/files.md).
@pytest.mark.mpis("mpich", "openmpi")
def test_a_program_writes_and_reads_detached_files(detached: Lab) -> None:
    lab, keys = detached, detached.keys("keys", "clinical")
    sealed, plain = lab.folder / "a.sealed", lab.folder / "a.plain"
    for file in (sealed, plain):
        for action in ("write", "read"):
            assert "done" in lab.run(action, str(file), keys=keys).check().stdout
    assert CANARY in plain.read_bytes()
    assert CANARY not in sealed.read_bytes() and CANARY not in sidecar(sealed).read_bytes()
    assert not sealed.read_bytes().startswith(b"GMBSNFIL") and sidecar(sealed).read_bytes().startswith(b"GMBSNFIL")
    assert sealed.stat().st_size == plain.stat().st_size
    # Another number of ranks reads what was written, and nobody without the keys.
    assert "rank 4" in lab.run("refused", str(sealed), keys=keys, n=5).check().stdout
    nobody = lab.run("refused", str(sealed), keys=lab.keys("none")).check()
    # The middle is left out of a sentence that is longer than what MPI takes, as with a long path.
    assert nobody.stdout.count("no label of it is ") == 3, nobody.describe()
    store = {"GAMBESON_KEYS": str(keys)}
    lab.tool(store, "file", "open", str(sealed), str(lab.folder / "again"))
    assert (lab.folder / "again").read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("action", ["own", "gaps"])
def test_ranks_write_detached_files_together(detached: Lab, action: str) -> None:
    sealed, keys = detached.folder / "a.sealed", detached.keys("keys", "clinical")
    assert "done" in detached.run(action, str(sealed), keys=keys, n=4).check().stdout
    detached.tool({"GAMBESON_KEYS": str(keys)}, "file", "verify", str(sealed))


def test_data_keeps_its_offsets_holes_and_lengths(detached: Lab) -> None:
    keys = detached.keys("keys", "clinical")
    sealed, plain = detached.folder / "a.sealed", detached.folder / "a.plain"
    jobs = [detached.run("holes", str(file), keys=keys, program=PROGRAM).check() for file in (sealed, plain)]
    for what in ("gaps", "alone", "together", "size", "preallocated"):
        ours, theirs = (said(job, what) for job in jobs)
        # Open MPI preallocates whole blocks of the file system.
        assert ours == theirs or what == "preallocated", jobs[0].describe()
        assert all(len(set(line.split())) == 1 for line in ours), "the size is the length on disk"
    assert holes(sealed) == holes(plain) != []


def test_a_sidecar_comes_and_goes_with_its_file(detached: Lab) -> None:
    job = detached.run(
        "modes", str(detached.folder / "a.sealed"), keys=detached.keys("keys", "clinical"), program=PROGRAM
    )
    job.check()
    assert said(job, "new") == said(job, "appended") == ["done"] * 3, job.describe()
    assert all(line.startswith("refused") for line in said(job, "again")), job.describe()
    assert said(job, "found") == ["True"] * 3, job.describe()
    assert said(job, "closed") == ["a.sealed a.sealed.gambeson"] * 3, job.describe()
    assert said(job, "deleted") == said(job, "on close") == ["[]"] * 3, job.describe()


@pytest.mark.mpis("mpich", "openmpi")
def test_one_without_the_other_is_refused(detached: Lab) -> None:
    lab, keys = detached, detached.keys("keys", "clinical")
    sealed, away = lab.folder / "a.sealed", lab.folder / "away"
    lab.run("write", str(sealed), keys=keys).check()

    def refused(file: Path, *words: str) -> str:
        job = lab.run("refused", str(file), *words, keys=keys).check()
        assert "canary" not in job.stdout and " read b" not in job.stdout, job.describe()
        return job.stdout

    sidecar(sealed).rename(away)
    for words in ((), ("write",)):
        said = refused(sealed, *words)
        assert "it is in clear, or its sidecar a.sealed.gambeson is gone" in said, said
    away.rename(sidecar(sealed))
    sealed.rename(away)
    for words in ((), ("write",)):
        assert "its data is gone; put it back, or remove the sidecar" in refused(sealed, *words)
    assert lab.run("write", str(sealed), keys=keys).status != 0 and not sealed.exists()
    away.rename(sealed)
    # A rule for everything, so that the sidecar's own name has one, too.
    (lab.folder / "gambeson.toml").write_text(RULES.replace("*.sealed", "*") + "detached = true\n")
    assert "it is the sidecar of a detached file; open the file" in refused(sidecar(sealed))
    other = lab.folder / "b.sealed"
    lab.run("write", str(other), keys=keys).check()
    sidecar(other).rename(sidecar(sealed))
    said = refused(sealed)
    assert "region 0" in said and "block 0: " in said, said


@pytest.mark.mpis("mpich", "openmpi")
def test_what_a_killed_job_leaves_of_a_detached_file(detached: Lab) -> None:
    lab, keys, sealed = detached, detached.keys("keys", "clinical"), detached.folder / "a.sealed"
    lab.run("write", str(sealed), keys=keys).check()
    assert lab.run("killed", str(sealed), keys=keys).status != 0
    store = {"GAMBESON_KEYS": str(keys)}
    found = json.loads(lab.tool(store, "file", "verify", "--json", str(sealed), status=1))
    assert not found["closed"] and {finding["block"] for finding in found["findings"]} <= set(range(7)), found
    assert all("was never closed" in finding["what"] for finding in found["findings"]), found
    lab.tool(store, "file", "accept", str(sealed))
    assert lab.tool(store, "file", "cat", str(sealed), "--length", "20") == "\0" * 20
    assert json.loads(lab.tool(store, "file", "verify", "--json", str(sealed)))["findings"] == []
