"""Identities by MUNGE and Kerberos: who works on a host of the site needs no administrator, and strangers get nothing.

munged, the key distribution centre and all accounts are the tests' own; hosts are network namespaces.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import unavailable
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from harness.hosts import Hosts, hosts
from harness.mpis import ROOT, clean_environment
from harness.python import Package
from harness.site import Site

pytestmark = [pytest.mark.namespaces]

PROGRAMS = ROOT / "tests" / "programs" / "launch"
ACCOUNTS = {"alice": 12001, "bob": 12002, "carol": 12003, "Dora": 12004, "daemons": 612}


def needs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            unavailable(f"{program} is missing: run tools/bootstrap.sh test")


class Place(Site):
    """A site with people: their homes and accounts are on each host, and so is a /run."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        # People run it, too, wherever it was built.
        own = self.root / "gambeson"
        shutil.copy(self.gambeson, own)
        self.gambeson = own
        for host in self.hosts.names:
            (self.root / host / "run").mkdir()
            passwd = self.root / host / "etc" / "passwd"
            for name, uid in ACCOUNTS.items():
                home = self.root / host / name
                home.mkdir(mode=0o700)
                os.chown(home, uid, uid)
                passwd.write_text(passwd.read_text() + f"{name}:x:{uid}:{uid}::{home}:/bin/sh\n")

    def told(self, host: str, name: str, script: str) -> subprocess.CompletedProcess[str]:
        """What a person's command says."""
        uid, home = ACCOUNTS[name], self.root / host / name
        # Without a list of groups: those of the machine's root are nobody's here.
        words = f"setpriv --reuid {uid} --regid {uid} --clear-groups env HOME={home} LOGNAME={name} USER={name}"
        words += f" KRB5CCNAME=FILE:{home}/tickets sh -c {shlex.quote(script)}"
        return self.shell(host, words)

    def person(self, host: str, name: str, *words: str) -> str:
        done = self.told(host, name, " ".join([str(self.gambeson), *words]))
        assert done.returncode == 0, done
        return done.stdout

    def turned_away(self, status: int, host: str, name: str, *words: str) -> str:
        done = self.told(host, name, " ".join([str(self.gambeson), *words]))
        assert done.returncode == status, done
        return done.stderr

    def identity(self, host: str, name: str) -> Path:
        return self.root / host / name / ".config" / "gambeson" / "identity.pem"

    def issued(self) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.etc("h1", "authority/issued.jsonl").read_text().splitlines()]
        return [line["issued"] for line in lines if "issued" in line]

    @contextlib.contextmanager
    def service(self, host: str, *words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        """A program that goes on."""
        command = [str(self.ssh), host, "exec " + shlex.join(map(str, words))]
        with (self.root / f"{host}.log").open("ab") as said:
            process = subprocess.Popen(command, env=clean_environment(), stdout=said, stderr=said)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(10)

    @contextlib.contextmanager
    def munged(self, host: str, key: bytes) -> Iterator[subprocess.Popen[bytes]]:
        own = self.root / host / "run" / "munge"
        own.mkdir(exist_ok=True)
        (own / "key").write_bytes(key)
        (own / "key").chmod(0o600)
        files = [f"--{name}-file=/run/munge/{name}" for name in ("key", "log", "pid", "seed")]
        with self.service(host, "munged", "--foreground", "--force", *files) as process:
            until(lambda: (own / "munge.socket.2").exists())
            yield process


def until(there: object) -> None:
    deadline = time.monotonic() + 20
    while not there():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that all accounts can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="gambeson-guests-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def place(gambeson: Path, folder: Path) -> Iterator[Place]:
    """h1 with the authority, and h2; both have a daemon, and munged with one key."""
    needs("munged", "munge", "krb5kdc", "kadmin.local", "kinit")
    with hosts(folder, 2) as made:
        place = Place(made, gambeson, folder / "site")
        for host in made.names:
            kerberos(place, host)
        place.does("h1", "init", "--name", "ocean", "--identities", "munge,kerberos")
        place.does("h1", "enroll", "h2")
        # As a person finds it: no rules, so that everybody is himself.
        (place.root / "centre").mkdir()
        with contextlib.ExitStack() as running:
            key = os.urandom(128)
            for host in made.names:
                running.enter_context(place.munged(host, key))
                log = str(place.root / host / "audit.log")
                _, said = running.enter_context(place.stays(host, "daemon", "--log", log))
                assert said.startswith("gambesond: listening")
            centre(place)
            running.enter_context(place.service("h1", "krb5kdc", "-n", "-r", "OCEAN.TEST", "-r", "LAKE.TEST"))
            until(lambda: place.told("h2", "alice", "echo alice | kinit alice && kdestroy").returncode == 0)
            yield place


def kerberos(place: Place, host: str) -> None:
    etc = place.root / host / "etc"
    (etc / "krb5.conf").write_text(
        "[libdefaults]\n default_realm = OCEAN.TEST\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
        "[realms]\n OCEAN.TEST = {\n  kdc = 10.77.0.1\n }\n LAKE.TEST = {\n  kdc = 10.77.0.1\n }\n"
        "[domain_realm]\n h1 = OCEAN.TEST\n h2 = OCEAN.TEST\n"
    )
    (etc / "krb5kdc").mkdir()
    own = place.root / "centre"
    realms = "".join(
        f" {realm}.TEST = {{\n  database_name = {own}/{realm}\n  key_stash_file = {own}/{realm}.stash\n"
        f"  acl_file = {own}/acl\n  max_life = 10h\n }}\n"
        for realm in ("OCEAN", "LAKE")
    )
    (etc / "krb5kdc" / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_ports = 88\n kdc_tcp_ports = 88\n[realms]\n{realms}[logging]\n kdc = FILE:{own}/log\n"
    )


def centre(place: Place) -> None:
    """Who is in the realm, and in another one that it trusts; h1 has its key, and that of another service."""
    between = "addprinc -pw between krbtgt/OCEAN.TEST@LAKE.TEST"
    ocean = [
        *(f"addprinc -pw {name} {name}" for name in ("alice", "alice/admin", "carol", "root", "nowhere")),
        *(f"addprinc -randkey {name}" for name in ("host/h1", "http/h1", "host/h2")),
        "ktadd -k /etc/krb5.keytab host/h1 http/h1",
        between,
    ]
    for realm, commands in {"OCEAN.TEST": ocean, "LAKE.TEST": ["addprinc -pw alice alice", between]}.items():
        script = [f"kdb5_util create -s -W -P secret -r {realm}"]
        script += [f"kadmin.local -r {realm} -q '{command}'" for command in commands]
        said = place.shell("h1", " && ".join(script))
        assert said.returncode == 0, said
    assert (place.root / "h1" / "etc" / "krb5.keytab").exists()


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes().partition(b"-----END PRIVATE KEY-----\n")[2])


class Stranger:
    """A key of somebody's own, and what he says with it at the authority's daemon."""

    def __init__(self, place: Place, package: Package) -> None:
        self.place, self.package, self.key = place, package, Ed25519PrivateKey.generate()
        now, name = datetime.datetime.now(datetime.UTC), x509.Name([])
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self.key.public_key())
        made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.identity = place.root / "stranger.pem"
        self.identity.write_bytes(made.sign(self.key, None).public_bytes(Encoding.PEM) + key)

    def request(self, host: str = "h2") -> dict[str, object]:
        """Asks for a certificate for the key, as authority/request.rs has it."""
        public, now = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), int(time.time())
        message = b"gambeson enrolment request 1\0" + public + now.to_bytes(8, "big") + host.encode()
        signature = base64.b64encode(self.key.sign(message)).decode()
        return {"host": host, "time": now, "key": base64.b64encode(public).decode(), "signature": signature}

    def says(self, *questions: tuple[str, str]) -> list[str]:
        words = [self.package.python, PROGRAMS / "guest.py", self.identity, "/etc/gambeson/authority.pem", "h1:7200"]
        script = f"env PYTHONPATH={self.package.folder} " + shlex.join(map(str, words))
        done = self.place.shell("h2", script, stdin=json.dumps(questions))
        assert done.returncode == 0, done
        answers: list[str] = json.loads(done.stdout)
        return answers

    def shows(self, mechanism: str, credential: str, request: dict[str, object] | None = None) -> str:
        said = {"mechanism": mechanism, "credential": credential, "request": request or self.request()}
        (answer,) = self.says(("identify", json.dumps(said)))
        assert answer.startswith("refused: "), answer
        return answer


@pytest.fixture
def stranger(place: Place, package: Package) -> Stranger:
    return Stranger(place, package)


def test_munge_makes_everybody_himself(place: Place) -> None:
    # Nothing is there, and nobody was asked: the first command gets what it needs.
    done = place.told("h2", "alice", f"{place.gambeson} exec h1,h2 -- id -un")
    assert (done.returncode, done.stdout) == (0, "alice\nalice\n"), done
    assert re.fullmatch(r"gambeson: ocean knows you as user:alice by MUNGE, until [^\n]+\n", done.stderr), done
    path = place.identity("h2", "alice")
    assert path.stat().st_mode & 0o7777 == 0o600 and path.stat().st_uid == ACCOUNTS["alice"]
    first = certificate(path)
    lasts = first.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(hours=11.9) < lasts <= datetime.timedelta(hours=12)
    (names,) = [one.value for one in first.extensions if isinstance(one.value, x509.SubjectAlternativeName)]
    roles = names.get_values_for_type(x509.UniformResourceIdentifier)
    assert roles == ["gambeson:role:user", "gambeson:role:by:munge", "gambeson:role:user:alice"]
    assert any(one["roles"] == ["user", "by:munge", "user:alice"] for one in place.issued())
    lines = [json.loads(line) for line in (place.root / "h1" / "audit.log").read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "identify"]
    assert (line["identity"], line["by"], line["origin"], line["host"]) == ("user:alice", "munge", "uid 12001", "h2")
    place.does("h1", "audit-log", "verify", str(place.root / "h1" / "audit.log"))
    shown = place.does("h1", "site", "show")
    assert "by MUNGE" in shown and shown.endswith("people are certified by MUNGE and Kerberos, for 12 h\n")
    assert json.loads(place.does("h1", "site", "show", "--json"))["identities"]["mechanisms"] == ["munge", "kerberos"]
    # The second time it is silent; renewed it has the same key.
    assert place.told("h2", "alice", f"{place.gambeson} exec h1 -- true").stderr == ""
    assert "renewed, until" in place.person("h2", "alice", "site", "renew", "--now")
    second = certificate(path)
    assert second.serial_number != first.serial_number and second.public_key() == first.public_key()
    # He is himself and nobody else.
    refused = place.turned_away(69, "h2", "bob", "exec", "--account", "alice", "h1", "--", "id")
    assert "user:bob may not use the account alice here" in refused
    assert place.person("h1", "bob", "exec", "h2", "--", "id", "-un") == "bob\n"
    assert "is there already" in place.turned_away(70, "h2", "bob", "enroll", "--munge")
    assert "certified  user:bob until" in place.person("h2", "bob", "enroll", "--munge", "--replace")


def test_whom_munge_does_not_make_anybody(place: Place) -> None:
    refused = place.refuses(70, "h2", "enroll", "--munge")
    assert "the account root (uid 0) is not certified so: it is the system's" in refused
    assert "account daemons (uid 612)" in place.turned_away(70, "h2", "daemons", "enroll", "--munge")
    assert "its name could be taken for another one's" in place.turned_away(70, "h2", "Dora", "enroll", "--munge")
    # Revoked before she came, and back when an administrator says so.
    place.does("h1", "site", "revoke", "user:carol")
    assert "user:carol was revoked" in place.turned_away(70, "h2", "carol", "enroll", "--munge")
    place.does("h1", "enroll", "--user", "carol", "h2")
    place.person("h2", "carol", "enroll", "--munge")
    # And afterwards: neither her key nor another one is certified.
    place.does("h1", "site", "revoke", "user:carol")
    assert "was revoked" in place.turned_away(70, "h2", "carol", "site", "renew", "--now")
    assert "was revoked" in place.turned_away(70, "h2", "carol", "enroll", "--munge", "--replace")


def test_a_caught_credential_is_good_for_nobody(place: Place, stranger: Stranger) -> None:
    caught = place.root / "h2" / "alice" / "caught"
    library = place.root / "catch" / "libmunge.so.2"
    library.parent.mkdir()
    compiled = ["gcc", "-shared", "-fPIC", "-o", str(library), str(PROGRAMS / "catch.c"), "-ldl"]
    subprocess.run(compiled, check=True, timeout=60)
    enrol = f"LD_LIBRARY_PATH={library.parent} CAUGHT={caught} {place.gambeson} enroll --munge --replace"
    assert "MUNGE says no (caught)" in place.told("h2", "alice", enrol).stderr
    credential = caught.read_text()
    assert credential.startswith("MUNGE:")
    # Genuine, fresh and Alice's; for another session, and another key.
    assert "is for another session, host or key" in stranger.shows("munge", credential)
    assert "was used before" in stranger.shows("munge", credential)


def test_what_else_is_shown_to_the_authority(place: Place, stranger: Stranger) -> None:
    bare = [f"echo {number} | munge" for number in range(2)]
    credentials = [place.told("h2", "bob", script).stdout.strip() for script in bare]
    assert "is for another session, host or key" in stranger.shows("munge", credentials[0])
    other = Stranger(place, stranger.package).request()
    stranger = Stranger(place, stranger.package)
    assert "the request is for another key than the session's" in stranger.shows("munge", credentials[1], other)
    late = place.told("h2", "bob", "munge --no-input --ttl 1").stdout.strip()
    time.sleep(3)
    assert "is out of its time (Expired credential)" in stranger.shows("munge", late)
    assert "MUNGE says no (Invalid credential" in stranger.shows("munge", "MUNGE:nonsense:")
    assert "what came says nothing of who asks" in stranger.says(("identify", "{}"))[0]
    # Nothing else is open to him, whatever it is called.
    for answer in stranger.says(*((name, "{}") for name in ("gambesond", "authority", "partitions", "enrolment"))):
        assert "that is for this domain" in answer, answer


def test_where_munged_is_not_there_or_another(place: Place) -> None:
    own = place.root / "h2" / "run" / "munge"
    own.rename(own.with_name("away"))
    try:
        assert "this host's munged does not answer" in place.turned_away(
            69, "h2", "bob", "enroll", "--munge", "--replace"
        )
        with place.munged("h2", os.urandom(128)):
            refused = place.turned_away(70, "h2", "bob", "enroll", "--munge", "--replace")
            assert "is not of this site (Invalid credential)" in refused
    finally:
        shutil.rmtree(own, ignore_errors=True)
        own.with_name("away").rename(own)


def kinit(place: Place, name: str, principal: str, *options: str) -> None:
    said = place.told("h2", name, f"echo {principal.partition('@')[0]} | kinit {' '.join(options)} {principal}")
    assert said.returncode == 0, said


def test_kerberos_for_as_long_as_the_ticket(place: Place) -> None:
    refused = place.turned_away(69, "h2", "alice", "enroll", "--kerberos", "--replace")
    assert "Kerberos gives no ticket for host@h1 (" in refused and "`kinit` gets a ticket" in refused
    kinit(place, "alice", "alice", "-l", "20m")
    said = json.loads(place.person("h2", "alice", "enroll", "--kerberos", "--replace", "--json"))
    assert said["roles"] == ["user", "by:kerberos", "user:alice"]
    until = certificate(place.identity("h2", "alice")).not_valid_after_utc
    lasts = until - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=19) < lasts <= datetime.timedelta(minutes=20)
    assert place.person("h2", "alice", "exec", "h1", "--", "id", "-un") == "alice\n"
    assert place.told("h2", "alice", "klist").stdout.count("host/h1@OCEAN.TEST") == 1


def test_whom_kerberos_does_not_make_anybody(place: Place) -> None:
    """The ticket says who it is, and not the account that has it."""
    for principal, why in [
        ("alice/admin", "alice/admin@OCEAN.TEST has no account by the rules of the authority's host (auth_to_local"),
        ("alice@LAKE.TEST", "alice@LAKE.TEST has no account by the rules of the authority's host (auth_to_local"),
        ("root", "the account root (uid 0) is not certified so"),
        ("nowhere", "has no account nowhere, which is that of nowhere@OCEAN.TEST"),
        ("carol", "user:carol was revoked"),
    ]:
        kinit(place, "bob", principal)
        assert why in place.turned_away(70, "h2", "bob", "enroll", "--kerberos", "--replace")
    kinit(place, "bob", "alice")
    assert "user:alice" in place.person("h2", "bob", "enroll", "--kerberos", "--replace")
    shutil.rmtree(place.identity("h2", "bob").parent)


def test_a_ticket_for_something_else(place: Place, stranger: Stranger) -> None:
    kinit(place, "alice", "alice")

    def token(*words: str) -> str:
        path = place.root / "ticket.py"
        shutil.copy(PROGRAMS / "ticket.py", path)
        made = place.told("h2", "alice", shlex.join(["python3", str(path), *words]))
        assert made.returncode == 0, made
        return made.stdout.strip()

    unbound = "the ticket was shown for another session, host or key"
    assert unbound in stranger.shows("kerberos", token("host@h1", "another session"))
    assert unbound in stranger.shows("kerberos", token("host@h1"))
    # A service of the same host, whose key is in the same keytab; and another host's.
    for service in ("http@h1", "host@h2"):
        answer = stranger.shows("kerberos", token(service, "x"))
        assert "Kerberos says no (" in answer and unbound not in answer, answer
    assert "Kerberos says no (" in stranger.shows("kerberos", "AAAA")
    keytab = place.root / "h1" / "etc" / "krb5.keytab"
    keytab.rename(keytab.with_suffix(".away"))
    try:
        refused = stranger.shows("kerberos", token("host@h1"))
        assert "has no keytab with keys of host/ that its daemon can read" in refused
    finally:
        keytab.with_suffix(".away").rename(keytab)


def test_a_site_that_takes_neither(two_hosts: Hosts, gambeson: Path, tmp_path: Path) -> None:
    site = Site(two_hosts, gambeson, tmp_path / "site")
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    other = site.shell("h2", site.words(["init", "--identities", "password"]))
    assert other.returncode == 64 and '"password" is none of munge, kerberos' in other.stderr
    assert "cannot be asked" in site.refuses(69, "h2", "enroll", "--munge")
    with site.stays("h1", "daemon"):
        assert "hears no guests" in site.refuses(70, "h2", "enroll", "--munge")
    # Nobody tries what the site does not take.
    assert "identity.pem cannot be read" in site.refuses(69, "h2", "exec", "h1", "--", "id")


def test_it_is_had_again_in_passing(gambeson: Path, folder: Path) -> None:
    """Five seconds for twelve hours: renewed after two thirds of them, and had again when they were over."""
    with hosts(folder, 1) as made:
        place = Place(made, gambeson, folder / "short")
        place.does("h1", "init", "--identities", "munge")
        settings = place.etc("h1", "authority/authority.toml")
        settings.write_text(settings.read_text().replace("hours = 12.0", "hours = 0.0015"))
        with place.munged("h1", os.urandom(128)), place.stays("h1", "daemon", "--log", str(place.root / "log")):
            shown = []
            for pause in (0, 4, 7):
                time.sleep(pause)
                done = place.told("h1", "alice", f"{place.gambeson} exec h1 -- id -un")
                assert done.stdout == "alice\n" and done.stderr.count("knows you") == (pause == 0), done
                shown.append(certificate(place.identity("h1", "alice")))
            assert len({one.serial_number for one in shown}) == 3
            assert len({one.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) for one in shown}) == 1
            assert shown[1].not_valid_after_utc < datetime.datetime.now(datetime.UTC)


def test_settings(place: Place) -> None:
    """Settings count when the daemon starts; hosts hear of them with the next renewal."""
    settings = place.etc("h1", "authority/authority.toml")
    text = settings.read_text()
    assert "hours = 12" in text
    settings.write_text(text.replace("hours = 12", "hours = 13"))
    assert "identities for 13 hours" in place.refuses(64, "h1", "site", "show")
    settings.write_text(re.sub(r"mechanisms = \[.*\]", "mechanisms = []", text))
    assert "identities" in place.etc("h2", "site.toml").read_text()
    place.does("h1", "site", "renew", "--now")
    assert "identities" not in place.etc("h1", "site.toml").read_text()
    settings.write_text(text)
