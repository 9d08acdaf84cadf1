"""Sealed files on a parallel file system: GlusterFS of two servers, which two hosts have mounted."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from functional.test_mpi_io import CASES_PER_JOB, compare
from harness import glusterfs
from harness.glusterfs import Volume
from harness.hosts import Hosts
from harness.jobs import Job
from harness.mpis import ROOT, Mpi, clean_environment
from harness.sealed_files import RULES, Lab

pytestmark = [pytest.mark.long, pytest.mark.namespaces, pytest.mark.timeout(1800)]


@pytest.fixture
def volume(tmp_path: Path, two_hosts: Hosts, request: pytest.FixtureRequest) -> Iterator[Volume]:
    if not glusterfs.is_installed():
        pytest.skip("GlusterFS is not here, or no FUSE: tools/bootstrap.sh long")
    folder = tmp_path / "gluster"
    folder.mkdir()
    with glusterfs.volume(folder, two_hosts, has_locks=not request.node.get_closest_marker("without_locks")) as made:
        yield made


@pytest.fixture
def shared(gambeson: Path, mpi: Mpi, volume: Volume) -> Lab:
    """A lab on the volume, as the first host sees it."""
    folder = volume.mount("h1")
    policy = folder / "gambeson.toml"
    policy.write_text(RULES)
    policy.chmod(0o600)
    return Lab(gambeson, mpi, folder)


@pytest.fixture
def run(shared: Lab, volume: Volume, tmp_path: Path) -> Callable[[str], Job]:
    """A job of files.py with one rank at each host, each with its own mount."""
    # Not on the volume: a key store takes locks.
    lab = Lab(shared.gambeson, shared.mpi, tmp_path)
    keys = lab.keys("keys", "clinical")

    def run(action: str) -> Job:
        mpi, hosts = shared.mpi, volume.hosts
        words, more = hosts.launcher(mpi.name)
        here = f'cd {volume.mounts}/$(hostname) && exec "$@"'
        program = ["bash", "-c", here, "sh", mpi.python, str(ROOT / "tests" / "programs" / "files.py")]
        seal = [str(shared.gambeson), "run", "--quiet", "--policy", str(shared.folder / "gambeson.toml"), "--"]
        environment = {**clean_environment(), **mpi.common, **more, "GAMBESON_KEYS": str(keys), "HOME": str(keys)}
        command = [*seal, *mpi.mpiexec, *words, "-n", "2", *program, action, "a.sealed"]
        return hosts.run("h1", command, env=environment, timeout=120)

    return run


def test_random_calls(gambeson: Path, mpi: Mpi, volume: Volume) -> None:
    seed = random.randrange(10**6)
    for first in range(0, 100, CASES_PER_JOB):
        compare(gambeson, mpi, volume.mount("h1"), seed, first, CASES_PER_JOB, block=[4, 64][first // 20 % 2])


def test_ranks_of_two_hosts(run: Callable[[str], Job]) -> None:
    run("write").check()
    run("read").check()


def test_hosts_write_to_the_same_blocks(run: Callable[[str], Job]) -> None:
    run("beside").check()


# Intel MPI's driver wants locks itself.
@pytest.mark.mpis("mpich", "openmpi")
@pytest.mark.without_locks
def test_without_locks_independent_writes_are_refused(run: Callable[[str], Job]) -> None:
    job = run("beside")
    assert job.status != 0 and "needs locks on ranges of it" in job.stderr, job.describe()


@pytest.mark.mpis("mpich")
def test_what_a_server_alters_is_noticed(shared: Lab, volume: Volume, tmp_path: Path) -> None:
    keys, name = shared.keys("keys", "clinical"), "a.sealed"
    plain, sealed = tmp_path / "plain", shared.folder / name
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    plain.write_bytes(chance.randbytes(300_000))
    own = {"GAMBESON_KEYS": str(keys)}
    shared.tool(own, "file", "seal", str(plain), str(sealed), "--label", "clinical")
    stored = volume.stored(name)
    right, noticed = stored.read_bytes(), 0
    for _ in range(100):
        place = chance.randrange(len(right))
        with stored.open("r+b") as file:
            file.seek(place)
            file.write(bytes([right[place] ^ 1 << chance.randrange(8)]))
        # The other host keeps nothing of it.
        read = [str(shared.gambeson), "file", "cat", str(volume.mount("h2") / name)]
        got = subprocess.run(read, env={**clean_environment(), **own}, capture_output=True, timeout=60, check=False)
        noticed += got.returncode != 0
        # What is altered may be the copy of the header that is out of date, or room in tables that nothing uses.
        assert got.returncode != 0 or got.stdout == plain.read_bytes(), (seed, place)
        stored.write_bytes(right)
    assert noticed > 60, seed
    shared.tool(own, "file", "verify", str(sealed))
