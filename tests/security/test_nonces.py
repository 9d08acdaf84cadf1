"""No key meets a nonce twice, on real jobs (threat-model rules 1 to 3).

The provider is built with the feature `nonce-oracle`, a debug build that writes down every nonce. The jobs have four
threads in every rank, epochs of a few records, room for two expanded keys, more messages than the carrier takes at
once, many communicators, several endpoints in a process, one-sided transfers and processes that start others, where
the MPI has them; and communicators of all protections beside each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.jobs import Job, Runner
from harness.mpis import Mpi

from security import nonces

PROGRAMS = Path(__file__).resolve().parent / "programs"
TINY = ["--tuning", "epoch-records=5", "--tuning", "epoch-blocks=40000", "--tuning", "cached-sessions=2"]
EXTRA = {
    "mpich": ["windows", "spawn"],
    "openmpi": ["spawn"],
    "intel": ["windows"],
    "debian-openmpi": ["spawn"],
}
"""What each MPI can besides messages."""
ENDPOINTS = {"mpich": {"MPIR_CVAR_CH4_NUM_VCIS": "4"}}
"""What makes an MPI open several endpoints in a process."""

WEAK = '[[rule]]\nbetween = ["*", "*"]\ncommunicator = "*"\nprotection = "none"'


@pytest.fixture
def flood(oracle: Path, tmp_path: Path) -> Callable[..., nonces.Uses]:
    """Runs a job and returns how it used its keys, which must be all that the ranks say they sealed."""

    def run(
        mpi: Mpi, turns: int, n: int, options: list[str], env: dict[str, str], *more: str, timeout: float
    ) -> nonces.Uses:
        written, stats = tmp_path / "nonces", tmp_path / "stats.json"
        written.mkdir()
        job = Runner(oracle).run(
            mpi,
            [PROGRAMS / "flood.py", str(turns), *more],
            n=n,
            options=["--quiet", f"--json={stats}", *options],
            env={**env, "GAMBESON_NONCE_ORACLE": str(written)},
            timeout=timeout,
        )
        job.check()
        assert "all ok" in job.stdout, job.describe()
        assert "WARNING: every nonce is written" in job.stderr, "nobody would notice what this build does"
        ranks = json.loads(stats.read_text())["ranks"]
        uses = nonces.read(written)
        # Of records without protection the frame has that of the pair.
        counters = ("records_sealed", "records_integrity", "records_plain")
        sealed = {rank["pid"]: sum(rank[counter] for counter in counters) for rank in ranks}
        assert "protected" not in more or all(rank[counter] > 0 for counter in counters for rank in ranks), ranks
        assert uses.records == sealed, "the oracle did not see what was sealed"
        assert all(sealed.values()), sealed
        rekeys, evictions = (sum(rank[counter] for rank in ranks) for counter in ("rekeys", "cache_evictions"))
        assert rekeys > uses.total // 20, "the epochs were not short"
        assert len(uses.keys) > rekeys, "every epoch has a key of its own"
        assert n < 3 or evictions > rekeys // 4, "there was room for all keys"
        assert uses.payloads > 0
        busy = sum(rank["carrier_busy"] for rank in ranks)
        assert turns < 10 or busy > 0, "the carrier took everything at once"
        directions = len(uses.keys) - rekeys
        print(
            f"{mpi.name}: {uses.total} nonces, {len(uses.keys)} keys, {len(sealed)} processes, {directions} directions,"
            f" {rekeys} rekeyings, {evictions} evictions, {uses.payloads} split records,"
            f" {busy} sealed while the carrier was busy"
        )
        return uses

    return run


Flood = Callable[..., nonces.Uses]


def test_no_nonce_twice(mpi: Mpi, flood: Flood) -> None:
    assert flood(mpi, 2, 3, TINY, ENDPOINTS.get(mpi.name, {}), *EXTRA[mpi.name], timeout=120).twice == []


def under(tmp_path: Path, protection: str, *rules: str) -> list[str]:
    policy = tmp_path / "gambeson.toml"
    policy.write_text("\n".join([f'protection = "{protection}"', *rules]))
    return [*TINY, "--policy", str(policy)]


@pytest.mark.mpis("mpich", "openmpi")
@pytest.mark.parametrize("protection", ["integrity", pytest.param("privacy", marks=pytest.mark.long)])
def test_no_nonce_twice_where_communicators_differ_from_their_pair(
    mpi: Mpi, flood: Flood, tmp_path: Path, protection: str
) -> None:
    options = under(tmp_path, protection, WEAK)
    assert flood(mpi, 2, 3, options, {}, *EXTRA[mpi.name], "protected", timeout=120).twice == []


@pytest.mark.long
@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
@pytest.mark.parametrize("protection", ["privacy", "integrity"])
def test_no_nonce_twice_in_a_long_job(mpi: Mpi, flood: Flood, tmp_path: Path, protection: str) -> None:
    options = under(tmp_path, protection)
    assert flood(mpi, 25, 4, options, ENDPOINTS.get(mpi.name, {}), *EXTRA[mpi.name], timeout=280).twice == []


@pytest.mark.mpis("mpich")
def test_a_repeated_nonce_is_found(mpi: Mpi, flood: Flood, tmp_path: Path) -> None:
    """The search can fail: one genuine use, planted among those of another rank."""
    uses = flood(mpi, 1, 2, TINY, {}, timeout=120)
    first, second = sorted((tmp_path / "nonces").iterdir())
    planted = first.read_bytes()[7 * nonces.USE : 8 * nonces.USE]
    with second.open("ab") as file:
        file.write(planted)
    found = nonces.read(tmp_path / "nonces")
    assert len(found.twice) == 1
    assert planted[:16].hex() in found.twice[0]
    assert found.total == uses.total + 1


def test_such_a_provider_refuses_by_itself(mpi: Mpi, oracle: Path) -> None:
    """Nobody runs one unawares."""
    job: Job = Runner(oracle).run(mpi, [PROGRAMS / "flood.py", "1"], n=2, timeout=60)
    assert job.status == 70, job.describe()
    assert "built with the feature nonce-oracle" in job.stderr, job.describe()
    assert not job.survivors, job.describe()
