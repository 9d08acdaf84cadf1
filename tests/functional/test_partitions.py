"""Partitions: members' jobs have a key that no other host gets, across rotations, removals and sites.

The same with partitions in a folder of the authority's host, and in the database of a key service.
"""

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

REFUSED, NOT_PERMITTED = 70, 77
PASSPHRASE = "a master passphrase"
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
    """Hosts that each have a /dev/shm of their own, too, and a daemon; and a key service, if partitions are in one."""

    def __init__(self, site: Site, memory: Path, mpi: Mpi, kept: str) -> None:
        self.kept = kept
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

    @contextlib.contextmanager
    def serves(self, host: str) -> Iterator[subprocess.Popen[str]]:
        with self.stays(host, "keyd", "serve", "--passphrase-file", str(self.root / "passphrase")) as (service, said):
            assert said.startswith("gambeson keyd: listening on "), service.communicate()
            yield service

    @contextlib.contextmanager
    def distributes(self, *names: str) -> Iterator[None]:
        """Who hands secrets out: these hosts' key services, or the daemons of these authorities' hosts."""
        with contextlib.ExitStack() as stack:
            if self.kept == "folder":
                stack.enter_context(self.daemons(*names))
            else:
                for name in names:
                    stack.enter_context(self.serves(name))
            yield

    @contextlib.contextmanager
    def up(self, *names: str, services: tuple[str, ...] = ("h1",)) -> Iterator[None]:
        """The daemons of these hosts, and who hands secrets out."""
        with contextlib.ExitStack() as stack:
            if self.kept == "service":
                stack.enter_context(self.distributes(*services))
            stack.enter_context(self.daemons(*names))
            yield

    def name_service(self, host: str, keys: str) -> None:
        """As an administrator does on the authority's host; others hear of it when they are enrolled or renewed."""
        with self.etc(host, "site.toml").open("a") as text:
            text.write(f'keys = "{keys}"\n')

    def make_service(self, host: str, rules: str = 'partitions = ["user:root"]\nofficers = ["user:root"]\n') -> None:
        passphrase = self.root / "passphrase"
        passphrase.touch(0o600)
        passphrase.write_text(PASSPHRASE + "\n")
        self.does(host, "keyd", "init", "--passphrase-file", str(passphrase))
        self.etc(host, "keyd.toml").write_text(rules)

    def begin(self, host: str, name: str) -> None:
        """A site, whose authority is on this host, and its partitions, too."""
        self.does(host, "init", "--name", name)
        if self.kept == "service":
            self.name_service(host, f"keyd://{host}")
            self.make_service(host)

    def given(self, host: str) -> list[dict[str, Any]]:
        """Who got secrets there, and when."""
        return self.lines(host, "partition") if self.kept == "folder" else self.rows(host, "partition")

    def denials(self, host: str) -> list[dict[str, Any]]:
        denials = self.lines(host, "refuse") if self.kept == "folder" else self.rows(host, "refusal")
        return [line for line in denials if "host" in line]

    def rows(self, host: str, event: str) -> list[dict[str, Any]]:
        """What the service's log, which holds together, has of some event."""
        assert "as they were written" in self.does(host, "key", "audit", "--verify")
        said = self.does(host, "key", "audit", "--json", "--last", "0")
        rows = [json.loads(line) for line in said.splitlines()]
        return [row["about"] | {"who": row["who"]["roles"]} for row in rows if row["event"] == event]

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


@contextlib.contextmanager
def made(gambeson: Path, tmp_path: Path, mpi: Mpi, kept: str) -> Iterator[Cluster]:
    with hosts(tmp_path, 3) as three:
        memory = Path("/dev/shm") / three.prefix
        try:
            yield Cluster(Site(three, gambeson, tmp_path / "site"), memory, mpi, kept)
        finally:
            shutil.rmtree(memory, ignore_errors=True)


def east(cluster: Cluster) -> Cluster:
    """One site, whose hosts h1 and h2 are members of the partition."""
    cluster.begin("h1", "east")
    for host in ("h2", "h3"):
        cluster.does("h1", "enroll", host)
    with cluster.distributes("h1"):
        assert "epoch 1, with 2 members" in cluster.does("h1", "partition", "create", "clinic", "h1", "H2")
    return cluster


@pytest.fixture(params=["folder", "service"])
def cluster(gambeson: Path, tmp_path: Path, mpi: Mpi, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with made(gambeson, tmp_path, mpi, request.param) as cluster:
        yield cluster


@pytest.fixture
def clinic(cluster: Cluster) -> Cluster:
    """With the partition in either place."""
    return east(cluster)


@pytest.fixture
def folder(gambeson: Path, tmp_path: Path, mpi: Mpi) -> Iterator[Cluster]:
    """With the partition in files, for what hosts do whichever it is."""
    with made(gambeson, tmp_path, mpi, "folder") as cluster:
        yield east(cluster)


def test_members_have_a_key_and_nobody_else(clinic: Cluster) -> None:
    assert "none runs; start it" in clinic.denied_alone("h1")
    with clinic.up("h1", "h2", "h3"):
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
        given = {(line["host"], line["epoch"]) for line in clinic.given("h1")}
        # The authority's own daemon asks nobody for what is in its folder.
        assert given - {("h1", 1)} == {("h2", 1), ("h3", 1)}
        assert (("h1", 1) in given) == (clinic.kept == "service")
        refusals = {(line["host"], line["partition"]) for line in clinic.denials("h1")}
        assert refusals - {("h1", "ward")} == {("h3", "clinic")}
        jobs = clinic.lines("h2", "job")
        assert jobs and all(line["account"] == "root" and line["epoch"] == 1 for line in jobs)
        listed = clinic.listed("h1")
    assert listed["site"] == "east" and len(listed["key"]) == 64
    assert [member["host"] for member in listed["partitions"][0]["members"]] == ["h1", "h2", "h3"]
    if clinic.kept == "service":
        return
    # Its secret is in one file, and the job's directory is gone.
    secret = clinic.etc("h1", "authority/partitions/clinic.secret").read_text().split()[-1]
    having = [path for path in clinic.root.rglob("*") if path.is_file() and secret in path.read_text("latin-1")]
    assert [path.name for path in having] == ["clinic.secret"] and having[0].stat().st_mode & 0o077 == 0


def test_a_host_with_the_jobs_secret_and_without_the_key_takes_no_part(folder: Cluster) -> None:
    """What a host that is no member could do that was sent the job's secret and does not go by its own Gambeson."""
    clinic = folder
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
    with clinic.up("h1", "h2", "h3"):
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


def test_members_go_on_while_nobody_hands_out(clinic: Cluster) -> None:
    with clinic.daemons("h2", "h3"):
        with clinic.distributes("h1"):
            clinic.does("h1", "partition", "add", "clinic", "h3")
            clinic.key("h2")
        clinic.key("h2")
        # What it never heard it cannot know.
        assert "cannot be asked" in clinic.denied_alone("h3")
        with clinic.distributes("h1"):
            clinic.does("h1", "partition", "remove", "clinic", "h2")
            assert "h2 is no member" in clinic.denied_alone("h2")
            clinic.key("h3")
        assert "cannot be asked" in clinic.denied_alone("h2")


def test_the_hosts_rules_say_which_accounts_may(folder: Cluster) -> None:
    clinic = folder
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
    cluster.begin("h1", "east")
    cluster.begin("h2", "west")
    cluster.does("h2", "enroll", "h3")
    with cluster.up("h1", "h2", "h3", services=("h1", "h2")):
        cluster.does("h1", "partition", "create", "clinic", "h1")
        key = cluster.listed("h2")["key"]
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
        given = {(line["host"], line["site"]) for line in cluster.given("h1")}
        assert given - {("h1", None)} == {("h2", "west"), ("h3", "west")}
        if cluster.kept == "service":
            # West's service is known to East's by its key, and gets nothing else there.
            assert ["site", "site:west"] in [line["who"] for line in cluster.rows("h1", "partition")]
            assert {(line["host"], line["epoch"]) for line in cluster.rows("h2", "partition")} == {("h2", 1), ("h3", 1)}
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


def test_partitions_move_to_a_key_service_and_nobody_notices(folder: Cluster) -> None:
    """The service is on another host than the authority, and members hear of it one after the other."""
    clinic = folder
    secret = clinic.etc("h1", "authority/partitions/clinic.secret").read_text().split()[-1]
    clinic.make_service("h2", 'officers = ["user:root"]\n')
    with clinic.daemons("h1", "h2", "h3"):
        before = clinic.keys("h1", "h2")
        assert len(set(before.values())) == 1
        go = clinic.root / "go"
        words = [*clinic.run("h1", "h2"), clinic.mpi.python, str(clinic.root / "exchange.py"), str(go)]
        with clinic.stays("h1", *words) as (job, said):
            assert said == "begun 3"
            # Where nobody listens the next one is asked.
            clinic.name_service("h1", "keyd://h3,h2")
            with clinic.serves("h2"):
                assert "`gambeson partition move` takes them there" in clinic.refuses(
                    REFUSED, "h1", "partition", "rotate", "clinic"
                )
                refused = clinic.refuses(NOT_PERMITTED, "h1", "partition", "move")
                assert 'partitions = ["user:root"]' in refused
                assert set(clinic.keys("h1", "h2")) == {"h1", "h2"}, "until then they are in the folder"
                assert not [line for line in clinic.rows("h1", "refusal") if line["wanted"] != "partition"]
            clinic.etc("h2", "keyd.toml").write_text('partitions = ["user:root"]\nofficers = ["user:root"]\n')
            with clinic.serves("h2"):
                assert "1 partition is in the key service keyd://h3,h2" in clinic.does("h1", "partition", "move")
                assert not list(clinic.etc("h1", "authority/partitions").glob("clinic.*"))
                assert "no partitions are in files" in clinic.does("h1", "partition", "move")
                # h2 and h3 still ask the authority's host, which asks the service for them.
                assert len(set(clinic.keys("h1", "h2").values())) == 1
                assert {line["epoch"] for line in clinic.lines("h2", "job")} == {1}
                assert "h3 is no member of partition clinic" in clinic.denied_alone("h3")
                go.touch()
                assert job.communicate(timeout=60)[0].count("sum 3") == 2
                by = {line["host"]: line["who"] for line in clinic.rows("h1", "partition")}
                assert "dns:h1" in by["h1"] and "dns:h1" in by["h2"] and "authority" in by["h2"]
                assert [line["host"] for line in clinic.rows("h1", "refusal") if "host" in line] == ["h3"]
                # As with a renewed certificate it hears of the service.
                clinic.name_service("h2", "keyd://h3,h2")
                clinic.key("h2")
                assert "dns:h2" in clinic.rows("h1", "partition")[-1]["who"]
                assert "epoch 2" in clinic.does("h1", "partition", "rotate", "clinic")
                assert clinic.listed("h1")["address"] == "h2:7201"
                assert len(set(clinic.keys("h1", "h2").values())) == 1
                changes = [(line["did"], line.get("epoch")) for line in clinic.rows("h1", "partition-change")]
                assert changes == [("move", None), ("rotate", 2)]
                # A host that nobody certified is noted, from wherever partitions are made.
                clinic.does("h1", "enroll", "--replace", "--user", "root", "root@h2")
                for host, name in (("h1", "ward"), ("h2", "hall")):
                    made = clinic.shell(host, clinic.words(["partition", "create", name, "h2", "h9"]))
                    assert made.returncode == 0 and "with 2 members" in made.stdout, made
                    assert "no host h9" in made.stderr and "no host h2" not in made.stderr, made
                clinic.does("h2", "keyd", "backup", str(clinic.root / "backup.db"))
                # What was in files is in none any more: not in the database, its journal, or a backup.
                forms = (secret.encode(), bytes.fromhex(secret))
                files = [path for path in clinic.root.rglob("*") if path.is_file()]
                assert any(path.name.startswith("keys.db-wal") for path in files)
                assert not [path for path in files if any(form in path.read_bytes() for form in forms)]
