"""Two key services: what a standby gives, what is lost when the primary is killed or cut off, and who may be one."""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hosts import Hosts, hosts
from harness.site import Site

pytestmark = [pytest.mark.namespaces]

USAGE, UNAVAILABLE, REFUSED = 64, 69, 70
BOTH = "keyd://h1,h2"


class Cluster(Site):
    """h1 has the key service, h2 is to be its standby, and people are on h3 and h2."""

    def __init__(self, made: Hosts, gambeson: Path, root: Path) -> None:
        super().__init__(made, gambeson, root)
        self.does("h1", "init", "--name", "ocean")
        for host in ("h2", "h3"):
            self.does("h1", "enroll", host)
            self.does("h1", "enroll", "--user", "ann", f"root@{host}")
        for host in made.names:
            passphrase = root / host / "home" / "passphrase"
            passphrase.touch(0o600)
            passphrase.write_text(f"the master passphrase of {host}\n")
        self.rules("h1", 'standbys = ["h2"]')
        self.rules("h2", 'standbys = ["h1"]')

    def rules(self, host: str, text: str) -> None:
        path = self.etc(host, "keyd.toml")
        path.write_text(f'officers = ["user:ann"]\n{text}\n')
        path.chmod(0o644)

    def keyd(self, host: str, command: str, *words: str) -> list[str]:
        unasked = [] if command == "status" else ["--passphrase-file", str(self.root / host / "home" / "passphrase")]
        return ["keyd", command, *unasked, *words]

    def follows(self, host: str, primary: str) -> str:
        return self.does(host, *self.keyd(host, "init", "--standby-of", primary))

    @contextlib.contextmanager
    def serving(self, host: str) -> Iterator[subprocess.Popen[str]]:
        with self.stays(host, *self.keyd(host, "serve")) as (process, said):
            assert said.startswith("gambeson keyd: listening on "), (said, process.stderr and process.stderr.read())
            yield process

    def asks(self, host: str, keys: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.shell(host, f"GAMBESON_KEYS={keys} {self.gambeson} {shlex.join(words)}")

    def done(self, host: str, keys: str, *words: str) -> str:
        done = self.asks(host, keys, *words)
        assert done.returncode == 0, done
        return done.stdout

    def refused(self, host: str, keys: str, *words: str) -> str:
        done = self.asks(host, keys, *words)
        assert done.returncode != 0 and done.stderr.startswith("gambeson: "), done
        return done.stderr

    def labels(self, host: str, keys: str) -> set[str]:
        listed = json.loads(self.done(host, keys, "key", "list", "--json"))["labels"]
        return {label["label"] for label in listed}

    def audit(self, host: str, keys: str, *words: str) -> list[dict[str, Any]]:
        said = self.done(host, keys, "key", "audit", "--json", "--last", "0", *words)
        return [json.loads(line) for line in said.splitlines()]

    def standing(self, host: str) -> dict[str, Any]:
        standing: dict[str, Any] = json.loads(self.does(host, "keyd", "status", "--json"))["standing"]
        return standing

    def in_step(self, primary: str = "h1") -> bool:
        return all(one["in_step"] for one in self.standing(primary)["standbys"])

    def cable(self, host: str, state: str) -> None:
        command = ["ip", "-n", self.hosts.switch, "link", "set", f"to-{host}", state]
        subprocess.run(command, check=True, timeout=20)


def until(what: Callable[[], bool], within: float = 30) -> None:
    deadline = time.monotonic() + within
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path, gambeson: Path) -> Iterator[Cluster]:
    with hosts(tmp_path, 3) as made:
        yield Cluster(made, gambeson, tmp_path / "site")


@pytest.fixture
def first(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """The primary's service, with a label."""
    cluster.does("h1", *cluster.keyd("h1", "init"))
    with cluster.serving("h1") as process:
        cluster.done("h3", BOTH, "key", "create", "clinical")
        yield process


def test_a_standby_gives_what_its_primary_has(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    said = cluster.follows("h2", "h1")
    assert "a standby's of h1" in said and "gambeson keyd serve" in said
    # Its own master key, under its own passphrase.
    elsewhere = str(cluster.root / "h1" / "home" / "passphrase")
    assert "master" in cluster.refuses(77, "h2", "keyd", "serve", "--passphrase-file", elsewhere)
    with cluster.serving("h2"):
        until(cluster.in_step)
        standing = cluster.standing("h2")
        assert (standing["duty"], standing["primary"], standing["behind"]) == ("standby", "h1", 0)
        assert "standby of h1" in cluster.does("h2", "keyd", "status")
        assert "in step" in cluster.does("h1", "keyd", "status")
        # What is acknowledged is there at once.
        cluster.done("h3", BOTH, "key", "create", "second")
        assert cluster.labels("h3", "keyd://h2") == {"clinical", "second"}
        # It changes nothing, and says who does and how to promote.
        said = cluster.refused("h3", "keyd://h2", "key", "create", "third")
        assert "h2 is a standby of h1 and changes nothing; ask h1" in said and "gambeson keyd promote" in said
        assert "h1, which alone makes changes, is not named; name it, too, as keyd://h1,h2" in said
        # It gives keys, and what it gives is in the primary's log soon.
        text = cluster.root / "h3" / "home" / "patients"
        text.write_text("Ann's patients\n")
        sealed = str(text.with_suffix(".sealed"))
        cluster.done("h3", BOTH, "file", "seal", "--label", "clinical", str(text), sealed)
        assert cluster.done("h3", "keyd://h2", "file", "cat", sealed) == "Ann's patients\n"

        def given(keys: str) -> list[dict[str, Any]]:
            rows = cluster.audit("h3", keys, "clinical")
            return [row for row in rows if row["event"] == "get" and row["about"].get("aside")]

        until(lambda: bool(given("keyd://h1")))
        assert given("keyd://h1")[-1]["about"]["aside"]["standby"] == "h2"
        assert given("keyd://h1")[-1]["who"]["name"] == "user:ann"

        first.kill()
        first.wait(10)
        # The next one answers: reads go on, changes do not.
        assert cluster.done("h3", BOTH, "file", "cat", sealed) == "Ann's patients\n"
        assert "which alone makes changes, is away" in cluster.refused("h3", BOTH, "key", "rotate", "clinical")
        waiting = [row for row in cluster.audit("h3", BOTH, "clinical") if row.get("aside")]
        assert [row["event"] for row in waiting] == ["get"]
        count = len(given("keyd://h2"))
        with cluster.serving("h1"):
            until(cluster.in_step)
            until(lambda: len(given("keyd://h1")) == count + 1)
            until(lambda: cluster.standing("h2")["aside"] == 0)
            assert cluster.audit("h3", "keyd://h2")[-1]["hash"] == cluster.audit("h3", "keyd://h1")[-1]["hash"]
            cluster.done("h3", BOTH, "key", "rotate", "clinical")
            cluster.does("h2", "keyd", "verify")


def test_what_was_acknowledged_survives_kill_9_of_the_primary(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    cluster.follows("h2", "h1")
    with cluster.serving("h2") as second:
        until(cluster.in_step)
        assert "h1 answers, and makes changes" in cluster.refuses(REFUSED, "h2", "keyd", "promote")
        acknowledged: list[str] = []
        over = threading.Event()

        def load(name: str) -> None:
            for number in itertools.count():
                label = f"{name}{number}"
                if over.is_set():
                    return
                if cluster.asks("h3", "keyd://h1", "key", "create", label).returncode == 0:
                    acknowledged.append(label)

        threads = [threading.Thread(target=load, args=(f"label-{name}-",)) for name in "abcd"]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged) > 25, 60)
        # For less than the primary waits, the standby is so slow that what is not waited for would be lost.
        second.send_signal(signal.SIGSTOP)
        time.sleep(0.8)
        first.kill()
        first.wait(10)
        second.send_signal(signal.SIGCONT)
        over.set()
        for thread in threads:
            thread.join(60)
        assert "in term 1" in cluster.does("h2", "keyd", "promote")
        assert "is the primary already" in cluster.refuses(REFUSED, "h2", "keyd", "promote")
        assert set(acknowledged) | {"clinical"} <= cluster.labels("h3", BOTH)
        # Changes find the new one by themselves.
        cluster.done("h3", BOTH, "key", "create", "after")
        # The former primary hears of it before it answers anybody.
        with cluster.serving("h1"):
            assert cluster.standing("h1")["duty"] == "none"
            assert cluster.standing("h1")["replaced_by"] == "h2"
            said = cluster.refused("h3", "keyd://h1", "key", "create", "more")
            assert "h2 was promoted in its place" in said and "gambeson keyd init --standby-of h2" in said
            assert "promoted in its place" in cluster.refused("h3", "keyd://h1", "key", "show", "clinical")
            assert "a service runs with this database" in cluster.refuses(
                USAGE, "h1", *cluster.keyd("h1", "init", "--standby-of", "h2")
            )
        said = cluster.follows("h1", "h2")
        assert "is the database that was here" in said
        with cluster.serving("h1"):
            until(lambda: cluster.in_step("h2"))
            assert cluster.labels("h3", "keyd://h1") == cluster.labels("h3", "keyd://h2")
            events = {row["event"] for row in cluster.audit("h3", "keyd://h1")}
            assert {"promote", "seed", "standby"} <= events


def test_both_go_on_alone_and_meet_again(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    cluster.follows("h2", "h1")
    with cluster.serving("h2") as second:
        until(cluster.in_step)
        cluster.cable("h2", "down")
        begun = time.monotonic()
        cluster.done("h3", "keyd://h1", "key", "create", "alone")
        # It was waited for, and not longer than is said: what is more is the client's.
        assert 1.8 < time.monotonic() - begun < 3.5
        assert not cluster.in_step()
        assert "standby-lost" in {row["event"] for row in cluster.audit("h3", "keyd://h1")}
        # The next one waits for nobody.
        cluster.done("h3", "keyd://h1", "key", "create", "alone2")
        until(lambda: cluster.standing("h2")["trouble"] is not None, 45)
        # It still gives keys, and is promoted since nobody answers it.
        assert cluster.labels("h2", "keyd://h2") == {"clinical"}
        assert "in term 1" in cluster.does("h2", "keyd", "promote")
        cluster.done("h2", "keyd://h2", "key", "create", "other")
        assert cluster.standing("h1")["duty"] == "primary"
        cluster.cable("h2", "up")
        until(lambda: cluster.standing("h1")["duty"] == "none", 45)
        assert cluster.labels("h3", BOTH) == {"clinical", "other"}
        cluster.done("h3", BOTH, "key", "create", "both")
        assert "promoted in its place" in cluster.refused("h3", "keyd://h1", "key", "create", "no")
        first.terminate()
        first.wait(20)
        # What only the former primary had is listed, and its database stays.
        said = cluster.follows("h1", "h2")
        folder = cluster.etc("h1", "keyd")
        [path] = folder.glob("keys.db.rows-apart-*")
        assert str(path) in said.replace("/etc/gambeson", str(folder.parent)) and path.stat().st_mode & 0o777 == 0o600
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["label"] for row in rows if row["event"] == "create"] == ["alone", "alone2"]
        assert len(list(folder.glob("keys.db.before-*"))) >= 1
        with cluster.serving("h1"):
            until(lambda: cluster.in_step("h2"))
            assert cluster.labels("h3", "keyd://h1") == {"clinical", "other", "both"}
            # And back again, on purpose, while the primary answers: nothing is lost.
            assert "h2 answers" in cluster.refuses(REFUSED, "h1", "keyd", "promote")
            assert "in term 2" in cluster.does("h1", "keyd", "promote", "--force")
            until(lambda: cluster.standing("h2")["duty"] == "none")
            cluster.done("h3", BOTH, "key", "rotate", "both")
        assert second.poll() is None


def test_a_cut_shorter_than_the_patience_of_links_loses_nothing(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    assert first.poll() is None
    cluster.follows("h2", "h1")
    with cluster.serving("h2") as second:
        until(cluster.in_step)
        for number in range(3):
            cluster.cable("h1", "down")
            time.sleep(1.5)
            cluster.cable("h1", "up")
            cluster.done("h3", BOTH, "key", "create", f"label{number}")
        until(cluster.in_step)
        assert cluster.labels("h3", "keyd://h2") == {"clinical", "label0", "label1", "label2"}
        # A standby that is killed goes on from where its disk is.
        second.kill()
        second.wait(10)
        cluster.done("h3", BOTH, "key", "create", "meanwhile")
    with cluster.serving("h2"):
        until(cluster.in_step)
        assert "meanwhile" in cluster.labels("h3", "keyd://h2")


def test_who_is_not_named_gets_nothing(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    said = cluster.refuses(UNAVAILABLE, "h3", *cluster.keyd("h3", "init", "--standby-of", "h1"))
    assert "h3 is none of the standbys that keyd.toml names on h1" in said and 'standbys = ["h3"]' in said
    assert not cluster.etc("h3", "keyd/keys.db").exists()
    refusals = [row for row in cluster.audit("h3", "keyd://h1") if row["event"] == "refusal"]
    assert refusals[-1]["about"]["wanted"] == "standby-of" and "dns:h3" in refusals[-1]["who"]["roles"]
    assert "names no key service" in cluster.refuses(USAGE, "h2", *cluster.keyd("h2", "init", "--standby-of", "h1,h2"))
    # A service of its own is none that can be made a standby.
    cluster.does("h2", *cluster.keyd("h2", "init"))
    assert "is there already" in cluster.refuses(USAGE, "h2", *cluster.keyd("h2", "init", "--standby-of", "h1"))
    for path in cluster.etc("h2", "keyd").iterdir():
        path.unlink()
    cluster.follows("h2", "h1")
    with cluster.serving("h2"):
        until(cluster.in_step)
        # Nothing follows what follows.
        said = cluster.refuses(USAGE, "h3", *cluster.keyd("h3", "init", "--standby-of", "h2"))
        assert "h2 makes no changes itself" in said
        first.terminate()
        first.wait(20)
        cluster.rules("h1", 'standbys = ["nohost"]')
        with cluster.serving("h1") as again:
            assert again.stderr is not None
            assert again.stderr.readline().startswith(
                "gambeson keyd: nohost, which keyd.toml names in standbys, does not answer: "
            )
            until(lambda: "none of the standbys" in (cluster.standing("h2")["trouble"] or ""))
            cluster.done("h3", "keyd://h1", "key", "create", "unseen")
            # Nor does it hear from whom a right was taken.
            assert "gives and changes nothing" in cluster.refused("h3", "keyd://h2", "key", "list")


def test_three_with_the_same_rules(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    """Whatever is promoted where, nothing that another primary acknowledged is undone unless that is forced."""
    first.terminate()
    first.wait(20)
    for host in ("h1", "h2", "h3"):
        cluster.rules(host, 'standbys = ["h1", "h2", "h3"]')
    all_three = "keyd://h1,h2,h3"
    with contextlib.ExitStack() as open_:
        served = {"h1": open_.enter_context(cluster.serving("h1"))}
        for host in ("h2", "h3"):
            cluster.follows(host, "h1")
            served[host] = open_.enter_context(cluster.serving(host))
        until(cluster.in_step)
        assert [one["name"] for one in cluster.standing("h1")["standbys"]] == ["h2", "h3"]
        cluster.done("h2", all_three, "key", "grant", "clinical", "bob", "--read")
        assert "h1 is the primary already, in term 0" in cluster.refuses(REFUSED, "h1", "keyd", "promote", "--force")
        served["h1"].kill()
        served["h1"].wait(10)
        assert "in term 1" in cluster.does("h2", "keyd", "promote")
        cluster.done("h2", all_three, "key", "revoke", "clinical", "bob")
        # The primary that h3 has followed is gone, and still it is not promoted: another one is there.
        said = cluster.refuses(REFUSED, "h3", "keyd", "promote")
        assert "h2 answers, and makes changes" in said
        until(lambda: cluster.standing("h3")["primary"] == "h2")
        until(lambda: cluster.standing("h2")["standbys"][1]["in_step"])
        # The former primary is no more, and has nothing of that revocation.
        served["h1"] = open_.enter_context(cluster.serving("h1"))
        assert cluster.standing("h1")["duty"] == "none"
        said = cluster.refuses(REFUSED, "h1", "keyd", "promote")
        assert "h2 was promoted in the place of h1" in said and "gambeson keyd init --standby-of h2, there" in said
        # Without the others h3 can be promoted. Then h1 takes the place of h2, by force: both are in term 2.
        cluster.cable("h3", "down")
        assert "in term 2" in cluster.does("h3", "keyd", "promote")
        assert "in term 2" in cluster.does("h1", "keyd", "promote", "--force")
        until(lambda: cluster.standing("h2")["duty"] == "none")
        cluster.cable("h3", "up")
        until(lambda: cluster.standing("h1")["rival"] == "h3" and cluster.standing("h3")["rival"] == "h1", 45)
        said = cluster.refused("h2", all_three, "key", "create", "no")
        assert "both primaries" in said and "gambeson keyd promote --force" in said
        assert "and h3 is, too" in cluster.refuses(REFUSED, "h1", "keyd", "promote")
        # One that is not there is not forgotten for that, but when somebody says which one stays.
        served["h3"].kill()
        served["h3"].wait(10)
        time.sleep(4)
        assert "gambeson keyd promote --force" in cluster.does("h1", "keyd", "status")
        assert "both primaries" in cluster.refused("h2", "keyd://h1", "key", "create", "no")
        assert "in term 3" in cluster.does("h1", "keyd", "promote", "--force")
        cluster.done("h2", "keyd://h1", "key", "create", "after")
        # h2 has not heard of term 3, and takes the place of h1 all the same if it is forced to.
        assert "in term 4" in cluster.does("h2", "keyd", "promote", "--force")
        until(lambda: cluster.standing("h1")["duty"] == "none")
        with cluster.serving("h3"):
            until(lambda: cluster.standing("h3").get("replaced_by") == "h2")
            assert "promoted in its place" in cluster.refused("h2", "keyd://h3", "key", "create", "no")
        cluster.follows("h3", "h2")
        with cluster.serving("h3"):
            until(lambda: cluster.standing("h2")["standbys"][1]["in_step"])
            # Two primaries of term 5, which never saw each other.
            served["h2"].kill()
            served["h2"].wait(10)
            assert "in term 5" in cluster.does("h1", "keyd", "promote", "--force")
            served["h1"].kill()
            served["h1"].wait(10)
            assert "in term 5" in cluster.does("h3", "keyd", "promote")
            with cluster.serving("h1"):
                until(lambda: cluster.standing("h3")["rival"] == "h1")
                assert "both primaries" in cluster.refused("h2", "keyd://h3", "key", "create", "no")
            # Who gives up what it was is no rival any more.
            cluster.follows("h1", "h3")
            cluster.done("h2", "keyd://h3", "key", "create", "again")


def test_a_new_database_key_leaves_standbys_behind(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    assert first.poll() is None
    cluster.follows("h2", "h1")
    with cluster.serving("h2"):
        until(cluster.in_step)
        words = ["--new-passphrase-file", str(cluster.root / "h1" / "home" / "passphrase"), "file:/etc/gambeson/new"]
        assert "standby " not in cluster.does("h1", *cluster.keyd("h1", "master-key", *words))
        assert cluster.in_step()
        said = cluster.does("h1", *cluster.keyd("h1", "master-key", "--new-database-key", *words))
        assert "standby     h2 cannot follow any more" in said and "gambeson keyd init --standby-of h1, there" in said
        assert not cluster.in_step()
        begun = time.monotonic()
        cluster.done("h3", "keyd://h1", "key", "create", "alone")
        assert time.monotonic() - begun < 1.8 and not cluster.in_step()
        until(lambda: bool(cluster.standing("h2")["apart"]))
    cluster.follows("h2", "h1")
    with cluster.serving("h2"):
        until(cluster.in_step)
        assert cluster.labels("h3", "keyd://h2") == {"clinical", "alone"}


def test_a_standby_notices_that_its_primary_was_put_back(cluster: Cluster, first: subprocess.Popen[str]) -> None:
    cluster.does("h1", *cluster.keyd("h1", "backup", "/etc/gambeson/copy.db"))
    cluster.follows("h2", "h1")
    with cluster.serving("h2"):
        until(cluster.in_step)
        cluster.done("h3", BOTH, "key", "grant", "clinical", "bob", "--read")
        cluster.done("h3", BOTH, "key", "revoke", "clinical", "bob")
        first.terminate()
        first.wait(20)
        for path in cluster.etc("h1", "keyd").glob("keys.db*"):
            if not path.name.endswith(".master"):
                path.unlink()
        cluster.does("h1", *cluster.keyd("h1", "restore", "/etc/gambeson/copy.db"))
        with cluster.serving("h1"):
            until(lambda: bool(cluster.standing("h2")["apart"]))
            said = cluster.refused("h3", "keyd://h2", "key", "show", "clinical")
            assert "cannot follow h1 any more" in said and "gambeson keyd init --standby-of h1" in said
