"""`gambeson file` started by mpiexec: each rank takes a share, and the first one speaks."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import clean_environment
from harness.sealed_files import Lab

# More than two groups of 16 MiB.
SIZE = 36_000_000
MAP = "trial:0:100000:0+1000,5000+1000"


def on_ranks(lab: Lab, *words: str | Path, n: int = 3, sealed: bool = True) -> Job:
    """A command on so many ranks; `sealed`: under `gambeson run`."""
    run = [str(lab.gambeson), "run", "--quiet", "--policy", "gambeson.toml", "--"] if sealed else []
    command = [*run, *lab.mpi.mpiexec, "-n", str(n), str(lab.gambeson), "file", *map(str, words)]
    keys = {"HOME": str(lab.folder), "GAMBESON_KEYS": str(lab.folder / "keys")}
    return run_marked(command, env={**clean_environment(), **lab.mpi.common, **keys}, timeout=200, cwd=lab.folder)


def alone(lab: Lab, *words: str | Path, status: int = 0) -> str:
    return lab.tool({"GAMBESON_KEYS": str(lab.folder / "keys")}, "file", *map(str, words), status=status)


def shown(job: Job) -> dict[str, Any]:
    """What one rank, and only one, has printed. Launchers have a word to say behind it of ranks that found fault."""
    assert job.stdout.count('"findings"') == 1, job.describe()
    found: dict[str, Any]
    found, _ = json.JSONDecoder().raw_decode(job.stdout[job.stdout.index("{") :])
    return found


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as changed:
        byte = os.pread(changed.fileno(), 1, at)
        os.pwrite(changed.fileno(), bytes([byte[0] ^ 1]), at)


@pytest.fixture
def plain(lab: Lab) -> Path:
    lab.keys("keys", "clinical", "trial")
    plain = lab.folder / "plain"
    plain.write_bytes(random.Random(5).randbytes(SIZE))
    return plain


@pytest.mark.mpis("mpich", "openmpi")
@pytest.mark.parametrize("kind", [[], ["--detached"]])
def test_ranks_seal_verify_compare_and_open(lab: Lab, plain: Path, kind: list[str]) -> None:
    on_ranks(lab, "seal", "plain", "sealed", "--label", "clinical", "--map", MAP, *kind).check()
    assert (lab.folder / "sealed.gambeson").exists() == bool(kind)
    found = shown(on_ranks(lab, "verify", "--json", "sealed").check())
    assert found == json.loads(alone(lab, "verify", "--json", "sealed"))
    assert found["bytes"] == SIZE and found["findings"] == [] and found["rollback_covered"]
    # On one host nothing has to be sealed between ranks.
    assert shown(on_ranks(lab, "verify", "--json", "sealed", sealed=False).check()) == found
    on_ranks(lab, "diff", "plain", "sealed").check()
    on_ranks(lab, "rekey", "sealed", "--label", "trial", n=2).check()
    on_ranks(lab, "open", "sealed", "again", n=4).check()
    assert (lab.folder / "again").read_bytes() == plain.read_bytes()
    assert "trial version 1" in on_ranks(lab, "info", "sealed").check().stdout
    left = sorted(path.name for path in lab.folder.iterdir() if path.name.startswith("."))
    assert left == [] or left == [".cache"], left


@pytest.mark.mpis("mpich", "openmpi")
def test_what_one_rank_finds_all_end_with(lab: Lab, plain: Path) -> None:
    alone(lab, "seal", "plain", "sealed", "--label", "clinical")
    sealed = lab.folder / "sealed"
    for at in (5_000_000, 20_000_000, 35_000_000):
        flip(sealed, at)
    job = on_ranks(lab, "verify", "--json", "sealed")
    found = shown(job)
    assert job.status != 0 and not job.survivors
    assert found == json.loads(alone(lab, "verify", "--json", "sealed", status=1))
    assert len(found["findings"]) == 3
    opened = on_ranks(lab, "open", "sealed", "again")
    assert opened.status != 0 and opened.stderr.count("--leave-out writes zeros there") == 1, opened.describe()
    assert sorted(path.name for path in lab.folder.glob("*again*")) == []
    again = on_ranks(lab, "open", "--leave-out", "sealed", "again").check()
    assert again.stderr.count("zeros: ") == 3, again.describe()
    differs = on_ranks(lab, "diff", "plain", "again")
    assert differs.status != 0
    assert alone(lab, "diff", "plain", "again", status=1) in differs.stdout
    missing = on_ranks(lab, "verify", "nowhere")
    assert missing.stderr.count("cannot be opened") == 1, missing.describe()
