"""Partitions: members' jobs have a key that no other host gets, across rotations, removals and sites."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hosts import hosts
from harness.mpis import Mpi
from harness.programs import ASK
from harness.site import Site

pytestmark = [pytest.mark.namespaces, pytest.mark.mpis("mpich")]

REFUSED = 70
# The credential ends with the epoch and the key of its one partition, and 32 bytes of a digest.
SHOW = f'echo "$(hostname) $({sys.executable} {ASK} credential | tail -c 68 | head -c 36 | sha256sum | head -c 64)"'
EXCHANGE = """
import pathlib, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
print("begun", world.allreduce(world.rank + 1), flush=True)
while len(sys.argv) > 1 and not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("sum", world.allreduce(world.rank + 1), flush=True)
"""

# On h2 the key is another, and all else as the job has it.
FORGE = f"""
import hashlib, os, socket, sys
sys.path.append({str(ASK.parent)!r})
import ask
if socket.gethostname() == "h2":
    body = ask.given("credential")[:-64] + os.urandom(32)
    ask.place().unlink()
    ask.stand_in(ask.place(), body + hashlib.sha256(body).digest())
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Cluster(Site):
    """Hosts that each have a /dev/shm of their own, too, and a daemon."""

    def __init__(self, site: Site, memory: Path, mpi: Mpi) -> None:
        self.hosts, self.gambeson, self.root, self.ssh = site.hosts, site.gambeson, site.root, site.ssh
        self.mpi = mpi
        self.separate("/dev/shm", memory)
        (self.root / "exchange.py").write_text(EXCHANGE)

    @contextlib.contextmanager
    def daemons(self, *names: str) -> Iterator[dict[str, subprocess.Popen[str]]]:
        with contextlib.ExitStack() as stack:
            started = {}
            for name in names:
                process, said = stack.enter_context(self.stays(name, "daemon", "--log", str(self.log(name))))
                assert said.startswith("gambesond: listening on "), said
                started[name] = process
            yield started

    def log(self, host: str) -> Path:
        return self.root / host / "audit.log"

    def lines(self, host: str, event: str) -> list[dict[str, Any]]:
        """What the host's audit log, which holds together, has of some event."""
        self.does(host, "audit-log", "verify", str(self.log(host)))
        lines = [json.loads(line) for line in self.log(host).read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def run(self, *names: str) -> list[str]:
        """The words of a job that starts a process on each of some hosts."""
        launcher = ["-launcher", "rsh", "-launcher-exec", str(self.ssh), "-hosts", ",".join(names), "-ppn", "1"]
        return ["run", "-q", "--partition", "clinic", "--", *self.mpi.mpiexec, *launcher, "-n", str(len(names))]

    def keys(self, *names: str) -> dict[str, str]:
        """A job's key in the partition, on each of its hosts, started on the first."""
        said = self.does(names[0], *self.run(*names), "bash", "-c", f"'{SHOW}'")
        return {(words := line.split())[0]: words[1] for line in said.splitlines()}

    def key(self, host: str) -> str:
        """The same in a job of that host alone, which needs no launcher."""
        said = self.does(host, "run", "-q", "--partition", "clinic", "--", "bash", "-c", f"'{SHOW}'")
        return said.split()[1]

    def denied(self, *names: str) -> str:
        done = self.shell(names[0], self.words([*self.run(*names), "bash", "-c", f"'{SHOW}'"]))
        assert done.returncode == REFUSED, done
        assert len(done.stdout.splitlines()) < len(names), done
        return done.stderr

    def denied_alone(self, host: str) -> str:
        return self.refuses(REFUSED, host, "run", "-q", "--partition", "clinic", "--", "true")

    def listed(self, host: str) -> dict[str, Any]:
        return dict(json.loads(self.does(host, "partition", "list", "--json")))


@pytest.fixture
def cluster(gambeson: Path, tmp_path: Path, mpi: Mpi) -> Iterator[Cluster]:
    with hosts(tmp_path, 3) as made:
        memory = Path("/dev/shm") / made.prefix
        try:
            yield Cluster(Site(made, gambeson, tmp_path / "site"), memory, mpi)
        finally:
            shutil.rmtree(memory, ignore_errors=True)


@pytest.fixture
def clinic(cluster: Cluster) -> Cluster:
    """One site, whose hosts h1 and h2 are members of the partition."""
    cluster.does("h1", "init", "--name", "east")
    for host in ("h2", "h3"):
        cluster.does("h1", "enroll", host)
    assert "epoch 1, with 2 members" in cluster.does("h1", "partition", "create", "clinic", "h1", "H2")
    return cluster


def test_members_have_a_key_and_nobody_else(clinic: Cluster) -> None:
    assert "none runs; start it" in clinic.denied_alone("h1")
    with clinic.daemons("h1", "h2", "h3"):
        keys = clinic.keys("h1", "h2")
        assert sorted(keys) == ["h1", "h2"] and len(set(keys.values())) == 1
        # Another job has another.
        assert not set(keys.values()) & set(clinic.keys("h2", "h1").values())
        said = clinic.does("h1", *clinic.run("h1", "h2"), clinic.mpi.python, str(clinic.root / "exchange.py"))
        assert said.count("sum 3") == 2
        # A host that is no member can neither begin a job nor be in one.
        assert "h3 is no member of partition clinic" in clinic.denied_alone("h3")
        assert "h3 is no member of partition clinic" in clinic.denied("h1", "h3")
        refused = clinic.refuses(REFUSED, "h1", "run", "-q", "--partition", "ward", "--", "true")
        assert "this site has no partition ward" in refused
        clinic.does("h1", "partition", "add", "clinic", "h3")
        assert len(set(clinic.keys("h1", "h3").values())) == 1
        given = [(line["host"], line["epoch"]) for line in clinic.lines("h1", "partition")]
        assert set(given) == {("h2", 1), ("h3", 1)}
        refusals = [(line["host"], line["partition"]) for line in clinic.lines("h1", "refuse") if "host" in line]
        assert set(refusals) == {("h3", "clinic")}
        jobs = clinic.lines("h2", "job")
        assert jobs and all(line["account"] == "root" and line["epoch"] == 1 for line in jobs)
    listed = clinic.listed("h1")
    assert listed["site"] == "east" and len(listed["key"]) == 64
    assert [member["host"] for member in listed["partitions"][0]["members"]] == ["h1", "h2", "h3"]
    # Its secret is in one file, and the job's directory is gone.
    secret = clinic.etc("h1", "authority/partitions/clinic.secret").read_text().split()[-1]
    having = [path for path in clinic.root.rglob("*") if path.is_file() and secret in path.read_text("latin-1")]
    assert [path.name for path in having] == ["clinic.secret"] and having[0].stat().st_mode & 0o077 == 0


def test_a_host_with_the_jobs_secret_and_without_the_key_takes_no_part(clinic: Cluster) -> None:
    """What a host that is no member could do that was sent the job's secret and does not go by its own Gambeson."""
    with clinic.daemons("h1", "h2"):
        forge, exchange = clinic.root / "forge.py", clinic.root / "exchange.py"
        forge.write_text(FORGE)
        impatient = clinic.root / "impatient.toml"
        impatient.write_text('gap_timeout = "3 s"\n')
        words = [*clinic.run("h1", "h2"), clinic.mpi.python, str(forge), str(exchange)]
        words[1:1] = ["--policy", str(impatient)]
        done = clinic.shell("h1", clinic.words(words))
        print(done.stderr)
        assert done.returncode == REFUSED, done
        assert "begun" not in done.stdout and "gambeson: " in done.stderr, done


def test_who_was_removed_is_in_no_new_job_and_those_that_run_go_on(clinic: Cluster) -> None:
    with clinic.daemons("h1", "h2", "h3"):
        clinic.does("h1", "partition", "add", "clinic", "h3")
        before = clinic.keys("h1", "h3")
        go = clinic.root / "go"
        words = [*clinic.run("h1", "h2", "h3"), clinic.mpi.python, str(clinic.root / "exchange.py"), str(go)]
        with clinic.stays("h1", *words) as (job, said):
            assert said == "begun 6"
            assert "epoch 2" in clinic.does("h1", "partition", "remove", "clinic", "h3")
            after = clinic.keys("h1", "h2")
            assert len(set(after.values())) == 1 and set(after.values()) != set(before.values())
            # Its daemon had the secret of the first epoch, and lets it go.
            assert "h3 is no member" in clinic.denied_alone("h3")
            assert "h3 is no member" in clinic.denied("h1", "h3")
            go.touch()
            assert job.communicate(timeout=60)[0].count("sum 6") == 3
            assert job.returncode == 0
        assert {line["epoch"] for line in clinic.lines("h2", "job")} == {1, 2}
        assert "until `gambeson partition rotate clinic`" in clinic.does(
            "h1", "partition", "remove", "--no-rotate", "clinic", "h2"
        )
        assert "epoch 3" in clinic.does("h1", "partition", "rotate", "clinic")
        assert clinic.listed("h1")["partitions"][0]["epoch"] == 3


def test_members_go_on_while_the_authoritys_host_is_down(clinic: Cluster) -> None:
    with clinic.daemons("h2", "h3"):
        with clinic.daemons("h1"):
            clinic.does("h1", "partition", "add", "clinic", "h3")
            clinic.key("h2")
        clinic.key("h2")
        # What it never heard it cannot know.
        assert "cannot be asked" in clinic.denied_alone("h3")
        clinic.does("h1", "partition", "remove", "clinic", "h2")
        with clinic.daemons("h1"):
            assert "h2 is no member" in clinic.denied_alone("h2")
            clinic.key("h3")
        assert "cannot be asked" in clinic.denied_alone("h2")


def test_the_hosts_rules_say_which_accounts_may(clinic: Cluster) -> None:
    rules = clinic.etc("h1", "daemon.toml")
    rules.write_text('[partitions]\nclinic = ["nobody"]\n')
    with clinic.daemons("h1"):
        assert "root may not run jobs in partition clinic on this host" in clinic.denied_alone("h1")
        assert [line["account"] for line in clinic.lines("h1", "refuse")] == ["root"]
    rules.unlink()
    with clinic.daemons("h1"):
        clinic.key("h1")
        # A policy can have all jobs run there; and a job runs in one.
        clinic.etc("h1", "gambeson.toml").write_text('[[partition]]\nname = "clinic"\n')
        done = clinic.does("h1", "run", "-q", "--", "bash", "-c", f"'{SHOW}'")
        assert len(done.split()[1]) == 64
        refused = clinic.refuses(64, "h1", "run", "-q", "--partition", "ward", "--", "true")
        assert 'in partition "clinic" and in "ward"' in refused


def test_a_partition_of_two_sites(cluster: Cluster) -> None:
    """h1 is a site, and h2 and h3 are another. Neither accepts the other's certificates."""
    cluster.does("h1", "init", "--name", "east")
    cluster.does("h2", "init", "--name", "west")
    cluster.does("h2", "enroll", "h3")
    cluster.does("h1", "partition", "create", "clinic", "h1")
    key = cluster.listed("h2")["key"]
    with cluster.daemons("h1", "h2", "h3"):
        shared = cluster.does("h1", "partition", "share", "clinic", "--with", "west", "--key", key)
        there = next(line.split()[2:] for line in shared.splitlines() if line.startswith("there "))
        cluster.does("h2", *there)
        assert "another site's" in cluster.refuses(REFUSED, "h2", "partition", "add", "clinic", "h3")
        time.sleep(3)  # until both daemons have seen it
        assert "h3 is no member" in cluster.denied_alone("h3")
        cluster.does("h1", "partition", "add", "clinic", "h3", "h2", "--site", "west")
        before = cluster.keys("h1", "h2", "h3")
        assert len(before) == 3 and len(set(before.values())) == 1
        assert len(set(cluster.keys("h3", "h1").values())) == 1
        said = cluster.does("h3", *cluster.run("h3", "h1"), cluster.mpi.python, str(cluster.root / "exchange.py"))
        assert said.count("sum 3") == 2
        given = cluster.lines("h1", "partition")
        assert {(line["host"], line["site"]) for line in given} == {("h2", "west"), ("h3", "west")}
        # A rotation here is one there, and a removal, too.
        assert "epoch 2" in cluster.does("h1", "partition", "remove", "clinic", "h2")
        assert "h2 is no member" in cluster.denied_alone("h2")
        assert len(set(cluster.keys("h1", "h3").values())) == 1
        assert {line["epoch"] for line in cluster.lines("h3", "job")} == {1, 2}
        assert "epoch 3" in cluster.does("h1", "partition", "unshare", "clinic", "--with", "west")
        time.sleep(3)
        # West is nobody here any more. What it remembers of the epoch before is of no use with this site's hosts.
        assert cluster.denied("h3", "h1")
        assert {line["epoch"] for line in cluster.lines("h1", "job")} == {1, 2}
        cluster.key("h1")
