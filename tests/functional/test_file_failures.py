"""What MPI programs meet when storage, keys or rights of a sealed file fail: a class and a sentence, and no hang."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.jobs import Job
from harness.sealed_files import RULES, Lab

PROGRAM = "file_failures.py"
FULL = ("NO_SPACE", "IO", "OTHER")


def said(job: Job, what: str) -> list[str]:
    """What each rank says of something."""
    lines = [line.partition(f" {what}: ")[2] for line in job.stdout.splitlines() if f" {what}: " in line]
    assert len(lines) == 3, job.describe()
    return lines


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


# Intel MPI, where it takes its driver for NFS, keeps its lock on the bytes of a write that failed: a rank that reads
# them waits for ever.
@pytest.mark.mpis("mpich", "openmpi")
@pytest.mark.namespaces
@pytest.mark.parametrize("kind", ["", "detached = true\n"])
def test_a_full_disk(lab: Lab, small: Path, kind: str) -> None:
    (lab.folder / "gambeson.toml").write_text(RULES + kind)
    keys, sealed = lab.keys("keys", "clinical"), small / "a.sealed"
    job = lab.run("full", str(sealed), keys=keys, program=PROGRAM).check()
    for what in ("collective", "alone"):
        # ROMIO has the class MPI_ERR_IO for that, and OMPIO MPI_ERR_OTHER.
        assert any(line.startswith(FULL) for line in said(job, what)), job.describe()
        assert all(line.startswith((*FULL, "done")) for line in said(job, what)), job.describe()
    assert said(job, "read") == ["done"] * 3, job.describe()
    # With room again the file is as it was left: what was written before is there.
    subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
    if said(job, "close") != ["done"] * 3:
        lab.tool({"GAMBESON_KEYS": str(keys)}, "file", "accept", "--leave-out", str(sealed))
    assert said(lab.run("open", str(sealed), keys=keys, program=PROGRAM).check(), "read") == ["done"] * 3


@pytest.mark.namespaces
def test_a_file_system_for_reading_alone(lab: Lab, small: Path) -> None:
    keys, sealed = lab.keys("keys", "clinical"), small / "a.sealed"
    (lab.folder / "plain").write_bytes(b"".join(bytes([rank + 1]) * (512 << 10) for rank in range(3)))
    seal = ["file", "seal", str(lab.folder / "plain"), str(sealed), "--label", "clinical"]
    lab.tool({"GAMBESON_KEYS": str(keys)}, *seal)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    job = lab.run("reading", str(sealed), keys=keys, program=PROGRAM).check()
    assert all(line.startswith(("READ_ONLY", "ACCESS")) for line in said(job, "open")), job.describe()
    assert all(line.startswith("READ_ONLY") and "for reading only" in line for line in said(job, "write"))
    assert said(job, "read") == ["done"] * 3, job.describe()


def test_a_key_store_that_goes_away_in_the_midst_of_a_job(lab: Lab) -> None:
    keys = lab.keys("keys", "clinical")
    sealed, other = lab.folder / "a.sealed", lab.folder / "b.sealed"
    # Each rank has it as a store of its own: what the launcher hands to a job does not go away.
    job = lab.run("gone", str(sealed), str(other), str(keys), roles=[keys] * 3, program=PROGRAM).check()
    for what in ("write", "sync", "read", "close"):
        assert said(job, what) == ["done"] * 3, job.describe()
    for line in said(job, "open"):
        assert line.startswith("ACCESS") and str(keys) in line, job.describe()
    keys.with_name("keys.away").rename(keys)
    found = json.loads(lab.tool({"GAMBESON_KEYS": str(keys)}, "file", "verify", "--json", str(sealed)))
    assert found["findings"] == [] and found["closed"] and not found["rollback_covered"], found


def test_a_key_store_that_is_locked_in_the_midst_of_a_job(lab: Lab) -> None:
    store, passphrase = lab.folder / "keys", lab.folder / "passphrase"
    sealed, other = lab.folder / "a.sealed", lab.folder / "b.sealed"
    passphrase.touch(0o600)
    passphrase.write_text("correct horse battery staple\n")
    under = {"GAMBESON_KEYS": str(store)}
    with_passphrase = ["--passphrase-file", str(passphrase)]
    lab.tool(under, "key", "init", *with_passphrase)
    lab.tool(under, "key", "create", *with_passphrase, "clinical")
    unlock = [str(lab.gambeson), "key", "unlock", "--for", "1", *with_passphrase]
    unlocked = subprocess.run(unlock, env=under, capture_output=True, timeout=60, check=False)
    if unlocked.returncode == 71:
        pytest.skip("this machine lets nobody use the kernel's keyring")
    assert unlocked.returncode == 0, unlocked
    gone = ["gone", str(sealed), str(other), str(store), str(lab.gambeson)]
    try:
        job = lab.run(*gone, roles=[store] * 3, program=PROGRAM).check()
    finally:
        lab.tool(under, "key", "lock")
    for what in ("write", "sync", "read", "close"):
        assert said(job, what) == ["done"] * 3, job.describe()
    for line in said(job, "open"):
        assert line.startswith("ACCESS") and "locked" in line and "gambeson key unlock" in line, job.describe()
    found = json.loads(lab.tool(under, "file", "verify", "--json", *with_passphrase, str(sealed)))
    assert found["findings"] == [] and found["closed"] and found["rollback_covered"], found


def test_a_label_that_has_expired(lab: Lab) -> None:
    keys, sealed, new = lab.keys("keys", "clinical"), lab.folder / "a.sealed", lab.folder / "b.sealed"
    lab.run("full", str(sealed), keys=keys, program=PROGRAM).check()
    lab.tool({"GAMBESON_KEYS": str(keys)}, "key", "expire", "--on", "now", "clinical")
    for file in (sealed, new):
        job = lab.run("open", str(file), keys=keys, program=PROGRAM).check()
        for line in said(job, "write") + said(job, "read"):
            assert line.startswith("ACCESS") and "expired" in line, job.describe()
    lab.tool({"GAMBESON_KEYS": str(keys)}, "key", "expire", "--on", "never", "clinical")
    job = lab.run("open", str(sealed), keys=keys, program=PROGRAM).check()
    assert said(job, "write") == said(job, "read") == ["done"] * 3, job.describe()
