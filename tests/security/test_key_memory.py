"""Expanded keys stand on pages that a fork wipes and a core dump leaves out, and nowhere else (threat-model rule 6).

The nonce oracle tells by their hashes which keys a rank used; all memory that the rank can write is searched for them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks.test_process import root_only, waiting_job
from harness.jobs import Runner
from harness.mpis import Mpi

from security import nonces

KEY = 32
"""Bytes of an AES-256 key, which are also the first of its expanded form."""
ENOUGH = 4 << 20
"""Bytes of secret pages that are searched at most: the first keys stand at their beginning."""


def regions(pid: int) -> Iterator[tuple[str, range, bool]]:
    """What a process can write: name, addresses, and whether it is kept from children and core dumps."""
    line, addresses, writable = "", range(0), False
    for row in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = row.split()
        if not words[0].endswith(":"):
            first, last = (int(number, 16) for number in words[0].split("-"))
            line, addresses, writable = row, range(first, last), words[1].startswith("rw")
        elif words[0] == "VmFlags:" and writable:
            yield line, addresses, {"wf", "dd"} <= set(words)


def found(pid: int, keys: set[bytes]) -> tuple[int, list[str]]:
    """Keys on secret pages, and the places of keys elsewhere."""
    secret, elsewhere = 0, []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line, addresses, kept in regions(pid):
            # Compilers and allocators align what is as long as a key; a stack is searched byte by byte.
            step, searched = (1 if "[stack]" in line else 8), 0
            for start in addresses[:: 1 << 20]:
                if kept and searched > ENOUGH:
                    break
                try:
                    memory.seek(start)
                    content = memory.read(min(1 << 20, addresses[-1] + 1 - start) + KEY - 1)
                except OSError:
                    continue
                if not any(content):
                    continue
                searched += len(content)
                for at in range(0, len(content) - KEY + 1, step):
                    window = content[at : at + KEY]
                    # A key does not begin with three zeros but once in sixteen million.
                    if window[:3] == b"\0\0\0" or hashlib.sha256(window).digest()[:16] not in keys:
                        continue
                    secret += kept
                    if not kept:
                        elsewhere.append(f"{pid}: {start + at:x} in {line}")
    return secret, elsewhere


@root_only
@pytest.mark.mpis("mpich")
@pytest.mark.parametrize("protection", ["privacy", "integrity"])
def test_keys_are_on_secret_pages_alone(mpi: Mpi, oracle: Path, plain: bool, tmp_path: Path, protection: str) -> None:
    if plain:
        pytest.skip("a plain job has no keys")
    written = tmp_path / "nonces"
    written.mkdir()
    policy = tmp_path / "policy.toml"
    policy.write_text(f'protection = "{protection}"\n')
    options, env = ["--policy", str(policy)], {"GAMBESON_NONCE_ORACLE": str(written)}
    # Under integrity the program's communicator with privacy has keys besides.
    expected = 2 if protection == "privacy" else 4
    with waiting_job(mpi, Runner(oracle), tmp_path, options=options, env=env) as (job, future):
        # The ranks go on talking; what they wrote down so far has all keys of two that know each other.
        while len(keys := nonces.read(written).keys) < expected:
            assert not future.done(), future.result().describe()
            time.sleep(0.1)
        for pid in job.pids:
            secret, elsewhere = found(pid, keys)
            assert secret >= expected, "the search itself does not work"
            assert elsewhere == []
    future.result().check()
