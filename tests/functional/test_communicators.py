"""Protection by communicator: what stands on the wire, what is refused, and the paper's Table 1 over MPI."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.jobs import Job
from harness.mpis import ALL, ROOT, Mpi
from harness.programs import Programs

RULE = '[[rule]]\nbetween = ["*", "*"]\ncommunicator = "models"\nprotection = "none"\n'
ETH_P_ALL = 3

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to capture")


class Wire:
    """All that passes the loopback interface, searched for words; a word may lie across two packets of a connection."""

    def __init__(self, words: list[str]) -> None:
        self.seen = dict.fromkeys(words, False)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        wanted = [word.encode() for word in self.seen]
        while True:
            try:
                packet = self._socket.recv(1 << 17)
            except TimeoutError:
                if self._over.is_set():
                    return
                continue
            for word in [word for word in wanted if word in packet]:
                self.seen[word.decode()] = True
                wanted.remove(word)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def listening(words: list[str]) -> Iterator[Wire]:
    wire = Wire(words)
    try:
        yield wire
    finally:
        wire.end()


FEATURES = {
    # Open MPI 5 has no windows here, Open MPI 4 no partitions and no sessions.
    "mpich": ["windows", "partitions"],
    "openmpi": ["partitions"],
    "intel": ["windows", "partitions"],
    "debian-openmpi": ["windows"],
}


@needs_root
@pytest.mark.mpis(*ALL)
@pytest.mark.parametrize("pair", ["privacy", "none"])
@pytest.mark.parametrize("model", ["world", "sessions"])
def test_bytes_are_in_clear_where_their_communicator_says_so_and_nowhere_else(
    mpi: Mpi, run_job: Callable[..., Job], programs: Programs, tmp_path: Path, pair: str, model: str, plain: bool
) -> None:
    if plain:
        pytest.skip("plain jobs protect nothing")
    if model == "sessions" and mpi.name == "debian-openmpi":
        pytest.skip("Open MPI 4 has no sessions")
    policy = tmp_path / "policy.toml"
    policy.write_text(f'protection = "{pair}"\n{RULE}')
    words = [secrets.token_hex(16) for _ in range(4)]
    asked = [word for pair in zip(["-", "none", "privacy", "integrity"], words, strict=True) for word in pair]
    features = FEATURES[mpi.name] if model == "world" else ["sessions"]
    with listening([*words, *(word[::-1] for word in words)]) as wire:
        program = [programs.path("communicators.py"), *features, *asked]
        job = run_job(mpi, program, options=["--policy", str(policy)])
    assert "passed" in job.check().stdout
    seen = list(wire.seen.values())
    # Of Open MPI's messages that ask for nothing none is weaker than the strongest of its communicators.
    unasked = pair == "none" and not mpi.is_openmpi
    assert seen[:4] == [unasked, True, False, True]
    # What carries no communicator has what the pair has, until one asks for more.
    one_sided = pair == "none" and model == "world"
    assert seen[4:] == [one_sided, one_sided, False, False]


@needs_root
def test_an_identifier_that_two_groups_have_for_different_communicators_weakens_nothing(
    mpi: Mpi, run_job: Callable[..., Job], programs: Programs, tmp_path: Path, plain: bool
) -> None:
    if plain:
        pytest.skip("plain jobs protect nothing")
    policy = tmp_path / "policy.toml"
    policy.write_text(RULE)
    word = secrets.token_hex(16)
    with listening([word]) as wire:
        job = run_job(mpi, [programs.path("communicators_groups.py"), word], n=4, options=["--policy", str(policy)])
    lines = sorted(job.check().stdout.splitlines())
    one = "refused" if mpi.is_openmpi else "sealed"
    assert lines == [f"one group: {one}"] * 4 + ["two groups: refused"] * 4, job.describe()
    assert "the processes know this communicator by different identifiers" in job.stderr, job.describe()
    assert not wire.seen[word]


@pytest.mark.mpis("mpich")
def test_processes_of_several_endpoints_have_no_protected_communicators(
    mpi: Mpi, run_job: Callable[..., Job], programs: Programs, tmp_path: Path, plain: bool
) -> None:
    """Their one-sided data may take any of them."""
    if plain:
        pytest.skip("plain jobs refuse nothing")
    job = run_job(mpi, [programs.path("communicators_refused.py"), "all"], env={"MPIR_CVAR_CH4_NUM_VCIS": "4"})
    assert "all: this process has several endpoints" in job.check().stdout, job.describe()


def test_what_can_not_be_had_is_refused_on_all_ranks(
    mpi: Mpi, run_job: Callable[..., Job], programs: Programs, tmp_path: Path, plain: bool
) -> None:
    if plain:
        pytest.skip("plain jobs refuse nothing")
    policy = tmp_path / "policy.toml"
    policy.write_text(RULE)
    job = run_job(mpi, [programs.path("communicators_refused.py")], n=3, options=["--policy", str(policy)])
    lines = job.check().stdout.splitlines()
    assert lines[-1] == "passed"
    for begin in (
        'weaker: gambeson_protection = "none" is weaker than the policy allows a communicator called "sky"',
        'unnamed: gambeson_protection = "none" is weaker than the policy allows',
        "forged: gambeson_protection = ",
        "apart: the ranks of this communicator ask for different protections",
        "missing: the ranks of this communicator ask for different protections",
        "idup: MPI_Comm_idup",
    ):
        assert any(line.startswith(begin) for line in lines), f"{begin}\n{job.describe()}"


def test_the_example_prints_the_papers_table(
    mpi: Mpi, run_job: Callable[..., Job], tmp_path: Path, plain: bool
) -> None:
    if plain:
        pytest.skip("plain jobs have no communicators to protect")
    example = ROOT / "examples" / "communicators"
    options = ["--policy", str(example / "policy.toml")]
    job = run_job(mpi, [example / "coupled.py", "--days", "1", "--steps", "2"], n=4, options=options)
    lines = job.check().stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[-3:]] == ["none", "coupler sealed", "all sealed"], job.describe()
