"""The key service under load: kills, backups, rotations, revocations, other master keys; where its secrets are not."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import resource
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.keyd import KeySite, Person, end, free_port

from vectors.key_file import EXPORT, read_key_file

UNAVAILABLE, NOT_PERMITTED = 69, 77
WORDS = "words between us"


@pytest.fixture
def site(gambeson: Path, tmp_path: Path) -> KeySite:
    made = KeySite(gambeson, tmp_path)
    made.rules('officers = ["user:olga"]\n')
    made.init()
    return made


class Load:
    """People who do something again and again, until this is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.failures: list[str] = []
        self.threads: list[threading.Thread] = []

    def does(self, act: Callable[[int], None]) -> None:
        def again() -> None:
            try:
                for turn in itertools.count():
                    if self.over.is_set():
                        return
                    act(turn)
            except Exception as failure:
                self.failures.append(repr(failure))

        self.threads.append(threading.Thread(target=again))
        self.threads[-1].start()

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(60)
        assert self.failures == []


@contextlib.contextmanager
def load() -> Iterator[Load]:
    made = Load()
    try:
        yield made
    finally:
        made.over.set()
    made.end()


def versions(person: Person, label: str) -> list[str]:
    shown = json.loads(person.does("key", "show", label, "--json"))["versions"]
    return [version["verifying_key"] for version in shown]


def test_every_acknowledged_change_outlives_kills(site: KeySite, request: pytest.FixtureRequest) -> None:
    """kill -9 in a loop while labels are made and rotated: what was acknowledged is there, and the log whole."""
    rounds = 50 if request.config.getoption("--long") else 6
    seed = int(os.environ.get("GAMBESON_SEED", "1"))
    print("seed", seed)
    chance = random.Random(seed)
    people = [site.person(name) for name in ("ann", "bob", "carl")]
    olga = site.person("olga")
    acknowledged: list[tuple[Person, str]] = []
    rotated: list[int] = []
    process = site.start()
    try:
        people[0].does("key", "create", "often")
        rotated = [1]

        def makes(person: Person) -> Callable[[int], None]:
            def make(turn: int) -> None:
                label = f"{person.home.name}-{turn}"
                # Who hears nothing asks again, as people do: it may have been made.
                done = person("key", "create", label)
                if done.returncode == 0:
                    acknowledged.append((person, label))
                else:
                    time.sleep(0.05)

            return make

        def rotate(_: int) -> None:
            done = people[0]("key", "rotate", "often")
            found = re.search(r"has version (\d+)", done.stdout)
            if found:
                rotated.append(int(found[1]))
            else:
                time.sleep(0.05)

        with load() as running:
            for person in people:
                running.does(makes(person))
            running.does(rotate)
            for _ in range(rounds):
                time.sleep(chance.uniform(0.3, 1.2))
                process.kill()
                process.communicate()
                process = site.start()
            time.sleep(0.5)
        tail = olga.does("key", "audit", "--verify").split("ends with ")[1].split()[0]
    finally:
        process.kill()
        process.communicate()
    with site.serving():
        assert len(acknowledged) >= rounds and rotated[-1] > 1, (len(acknowledged), rotated)
        for person in people:
            there = set(person.labels())
            missing = {label for who, label in acknowledged if who is person} - there
            assert not missing, missing
        assert versions(people[0], "often")[rotated[-1] - 1]
        assert sorted(set(rotated)) == sorted(rotated), "no version was given twice"
        olga.does("key", "audit", "--verify", "--since", tail)
        made = {row["label"] for row in olga.audit() if row["event"] == "create"}
        assert made >= {label for _, label in acknowledged}


def test_backups_and_master_keys_under_load(site: KeySite) -> None:
    administrator = site.administrator
    new = administrator.secret("new-master", "another master passphrase")
    copies: list[tuple[Path, set[str]]] = []
    made: set[str] = set()
    with site.serving():
        ann = site.person("ann")
        ann.does("key", "create", "clinical")

        def make(turn: int) -> None:
            ann.does("key", "create", f"made-{turn}")
            made.add(f"made-{turn}")

        def look(_: int) -> None:
            assert "clinical" in ann.labels()

        with load() as running:
            running.does(make)
            running.does(look)
            for number in range(4):
                time.sleep(0.3)
                before, copy = set(made), site.root / f"backup-{number}.db"
                administrator.does(*site.keyd("backup", str(copy)))
                copies.append((copy, before))
            place = f"file:{site.root}/new-master-key"
            words = ["--new-passphrase-file", new, "--new-database-key", place]
            administrator.does(*site.keyd("master-key", *words))
            time.sleep(0.5)
        assert made | {"clinical"} == set(ann.labels())
        keys = versions(ann, "clinical")
    # Each of the copies is whole, and has all that was acknowledged before it was made.
    old = (site.folder / "keyd" / "keys.db.master").read_text()
    for copy, before in copies:
        site.forget()
        words = ["--master-key", f"file:{site.folder}/keyd/master-key"]
        said = administrator.does(*site.keyd("restore", *words, str(copy)))
        assert "as it was written" in said
        with site.serving():
            there = set(ann.labels())
            assert before <= there <= made | {"clinical"}
            assert versions(ann, "clinical") == keys
    # A copy from before opens with the old master key alone.
    site.forget()
    (site.folder / "keyd" / "keys.db.master").write_text(old)
    site.passphrase = new
    assert administrator(*site.keyd("restore", str(copies[0][0]))).returncode != 0


def test_who_is_revoked_gets_nothing_from_then_on(site: KeySite) -> None:
    """Grants come and go under load; nobody gets a key after the revocation was acknowledged, and the log agrees."""
    with site.serving():
        ann, bob, olga = site.person("ann"), site.person("bob"), site.person("olga")
        ann.does("key", "create", "clinical")
        words = bob.secret("words", WORDS)
        wrong: list[str] = []
        state = {"granted": False, "change": 0}

        def export(turn: int) -> None:
            before = dict(state)
            done = bob(
                "key", "export", "--read-only", "--export-passphrase-file", words, f"out-{turn}.keys", "clinical"
            )
            if before["change"] == state["change"] and state["change"] % 2 == 0:
                # Nothing changed meanwhile.
                if (done.returncode == 0) != before["granted"]:
                    wrong.append(f"{before} {done}")
                if done.returncode not in (0, NOT_PERMITTED):
                    wrong.append(f"{done}")

        def rotate(_: int) -> None:
            ann.does("key", "rotate", "clinical")

        with load() as running:
            running.does(export)
            running.does(rotate)
            for granted in [True, False] * 4:
                state["change"] += 1
                if granted:
                    ann.does("key", "grant", "clinical", "bob", "--read")
                else:
                    ann.does("key", "revoke", "clinical", "bob")
                state["granted"] = granted
                state["change"] += 1
                time.sleep(0.7)
        assert wrong == []
        # In the order of the log bob has keys between a grant and a revocation alone.
        may = False
        for row in olga.audit():
            if row["event"] in ("grant", "revoke"):
                may = row["event"] == "grant"
            if row["event"] == "get" and row["who"]["name"] == "user:bob":
                assert may, row
        numbers = [
            version["version"] for version in json.loads(ann.does("key", "show", "clinical", "--json"))["versions"]
        ]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 2


def secrets(person: Person, site: KeySite) -> list[bytes]:
    """All keys of a label, as its owner exports them."""
    words = person.secret("words", WORDS)
    out = person.home / "all.keys"
    out.unlink(missing_ok=True)
    person.does("key", "export", "--export-passphrase-file", words, str(out), "clinical")
    (label,) = read_key_file(out.read_bytes(), WORDS, EXPORT)
    found = [bytes.fromhex(version[name]) for version in label["versions"] for name in ("wrapping_key", "seed")]
    assert all(len(secret) == 32 for secret in found) and len(found) == 4
    return found


def test_secrets_are_nowhere_in_clear(site: KeySite, tmp_path: Path) -> None:
    """Not in the database, its write-ahead log, a backup, or a core dump."""
    process = site.start()
    try:
        ann = site.person("ann")
        ann.does("key", "create", "clinical")
        ann.does("key", "rotate", "clinical")
        keys = secrets(ann, site)
        backup = tmp_path / "backup.db"
        site.administrator.does(*site.keyd("backup", str(backup)))
        copied = tmp_path / "copied"
        site.copy(copied)
        assert any(path.name.endswith("-wal") for path in copied.iterdir())
        for path in [*copied.iterdir(), backup]:
            stored = path.read_bytes()
            for secret in keys:
                assert secret not in stored, path
                assert secret.hex().encode() not in stored, path
            assert site.passphrase.encode() not in stored
        # Files are the service's alone.
        assert (site.folder / "keyd").stat().st_mode & 0o777 == 0o700
        for path in (site.folder / "keyd").iterdir():
            assert path.stat().st_mode & 0o077 == 0 or path.name.endswith(".master"), path
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"a master passphrase" not in words
    finally:
        end(process)


def test_nobody_but_root_looks_into_it(gambeson: Path) -> None:
    """Not even who runs it: other programs of that user are not the service."""

    def becoming(user: int) -> list[str]:
        return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]

    service, other = 65534, 65533
    # That user gets to it, unlike to pytest's own folders.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        site = KeySite(gambeson, Path(folder))
        site.init()
        ann = site.person("ann")
        for path in [site.folder, *site.folder.rglob("*"), Path(site.passphrase)]:
            os.chown(path, service, service)
        process = site.start(before=becoming(service))
        try:
            assert Path(f"/proc/{process.pid}/mem").stat().st_uid == 0, "what cannot be looked into is root's"
            assert f"Uid:\t{service}" in Path(f"/proc/{process.pid}/status").read_text()
            ann.does("key", "create", "clinical")
            for user in (service, other):
                for what in ("mem", "environ", "fd", "maps"):
                    look = [*becoming(user), "ls" if what == "fd" else "cat", f"/proc/{process.pid}/{what}"]
                    done = subprocess.run(look, capture_output=True, text=True, check=False)
                    assert done.returncode != 0 and "ermission denied" in done.stderr, done
            # The same look is good where nothing stands against it.
            with subprocess.Popen([*becoming(service), "sleep", "30"]) as sleeper:
                wanted, look = f"Uid:\t{service}", [*becoming(service), "cat", f"/proc/{sleeper.pid}/maps"]
                while wanted not in Path(f"/proc/{sleeper.pid}/status").read_text():
                    time.sleep(0.01)
                assert subprocess.run(look, capture_output=True, check=False).returncode == 0
                sleeper.kill()
        finally:
            end(process)


def test_a_full_disk_is_heard_of(site: KeySite, tmp_path: Path) -> None:
    """On the service's output, in its status and in its metrics; and it goes on when there is room again."""
    administrator, page = site.administrator, free_port()
    ann, prometheus = site.person("ann"), site.person("prometheus")
    administrator.does("site", "pages", "--folder", str(site.folder), site.host)
    site.rules(f'page = "127.0.0.1:{page}"\nmetrics = ["user:prometheus"]\n')
    keyd, kept = site.folder / "keyd", tmp_path / "kept"
    site.copy(kept)
    # Its database is on a disk of its own, which nobody else sees and which goes with it.
    small = 'mount -t tmpfs -o size=1m,mode=0700 none "$0" && cp -a "$1"/. "$0" && shift && exec "$@"'
    process = site.start(before=["unshare", "-m", "bash", "-c", small, str(keyd), str(kept)])

    def status(*words: str) -> str:
        enter = ["nsenter", "-m", "-t", str(process.pid), str(site.gambeson), *site.keyd("status", *words)]
        done = subprocess.run(enter, env=administrator.environment, capture_output=True, text=True, check=True)
        return done.stdout

    def failed() -> float:
        context = ssl.create_default_context(cafile=site.folder / "pages.pem")
        context.load_cert_chain(prometheus.home / ".config" / "gambeson" / "identity.pem")
        plain = socket.create_connection(("127.0.0.1", page), timeout=20)
        with context.wrap_socket(plain, server_hostname=site.host) as connection:
            request = f"GET /metrics HTTP/1.1\r\nHost: {site.host}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        found = re.search(r"^gambeson_keyd_failed_commits_total (\d+)", answer, re.MULTILINE)
        assert found, answer
        return float(found[1])

    try:
        ann.does("key", "create", "clinical")
        assert json.loads(status("--json"))["unwritten"] is None and failed() == 0
        fill = Path(f"/proc/{process.pid}/root{keyd}/fill")
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for label in ("one", "two", "three"):
            assert "failed" in ann.refuses(UNAVAILABLE, "key", "create", label)
        ann.refuses(UNAVAILABLE, "key", "export", "--export-passphrase-file", ann.secret("w", WORDS), "x", "clinical")
        unwritten = json.loads(status("--json"))["unwritten"]
        assert "full" in unwritten["why"] and unwritten["since"] <= unwritten["last"]
        assert "could not be written since" in status()
        assert failed() >= 4
        fill.unlink()
        ann.does("key", "create", "four")
        assert json.loads(status("--json"))["unwritten"] is None and "could not be written" not in status()
        assert set(ann.labels()) == {"clinical", "four"}
    finally:
        said = end(process)
    # Once a minute, and when it is over.
    assert said.count("cannot be used: ") == 1 and "nothing is given or changed" in said, said
    assert said.count("the key database can be written again") == 1, said


def test_no_core_is_dumped(site: KeySite, tmp_path: Path) -> None:
    cores = tmp_path / "cores"
    cores.mkdir(mode=0o777)

    def unlimited() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.chdir(cores)

    command = [str(site.gambeson), *site.keyd("serve", "--listen", f"127.0.0.1:{free_port()}")]
    with subprocess.Popen(
        command,
        env=site.administrator.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=unlimited,
    ) as process:
        assert process.stdout is not None and "listening" in process.stdout.readline()
        process.send_signal(6)
        process.communicate(timeout=20)
    assert process.returncode == -6
    assert list(cores.iterdir()) == []


def test_a_thousand_clients_at_once(site: KeySite) -> None:
    """None is refused, and all get their keys."""
    report = site.root / "keys.json"
    done = site.administrator(
        "bench", "keys", "--clients", "1000", "--time", "1", "--rounds", "1", "--json", str(report), timeout=240
    )
    assert done.returncode == 0, done
    gets = json.loads(report.read_text())["gets"][0]
    assert gets["clients"] == 1000 and gets["refused"] == 0, gets["why"]
