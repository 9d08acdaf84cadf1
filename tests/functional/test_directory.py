"""The site directory: keys, signing and checking as a site does it, and jobs that go by it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from harness.mpis import clean_environment

from vectors.directory import sign_directory, verify_directory

HOSTS = """[[host]]
name = "Ocean1"
addresses = ["10.1.0.1"]
transports = ["libfabric", "tcp"]
authentication = ["job"]
attach = { addresses = ["10.1.0.1:4000"], role = "model" }

[[network]]
subnet = "0.0.0.0/0"
protection = "privacy"
"""
SEED = bytes(range(32)).hex()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have another /etc")


class Site:
    """A place where somebody keeps a site's key and directory."""

    def __init__(self, gambeson: Path, place: Path) -> None:
        self.gambeson, self.place = gambeson, place

    def __call__(self, *words: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, str(self.gambeson), *words],
            cwd=self.place,
            env=clean_environment() | {"XDG_STATE_HOME": str(self.place / "state")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def does(self, *words: str) -> str:
        done = self("directory", *words)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, *words: str) -> str:
        done = self("directory", *words)
        assert done.returncode == status and done.stdout == "", done
        assert done.stderr.startswith("gambeson: ") and done.stderr.count("\n") == 1, done
        return done.stderr

    def hosts(self, text: str = HOSTS) -> None:
        (self.place / "directory.toml").write_text(text)

    def check(self) -> tuple[str, ...]:
        return ("check", "--site-key", "site.pub", "directory.toml")


@pytest.fixture
def site(gambeson: Path, tmp_path: Path) -> Site:
    """With a key, and a directory that is signed."""
    site = Site(gambeson, tmp_path)
    site.does("keygen")
    site.hosts()
    site.does("sign", "directory.toml")
    return site


def test_what_a_site_signs_holds_and_is_what_the_second_implementation_reads(site: Site) -> None:
    said = json.loads(site.does(*site.check(), "--json"))
    public = load_pem_public_key((site.place / "site.pub").read_bytes())
    key = public.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    text = (site.place / "directory.toml").read_text()
    now = int(time.time())
    read = verify_directory({"site_key": key, "directory": text, "now": now, "seen": 0})
    assert (said["hosts"], read["networks"]) == (read["hosts"], [["0.0.0.0/0", "privacy"]])
    assert said["networks"] == [{"subnet": "0.0.0.0/0", "protection": "privacy"}]
    assert read["expires"] - read["issued"] == 30 * 86_400 and now - 60 < read["issued"] <= now
    assert (site.place / "site.key").stat().st_mode & 0o777 == 0o600
    text = site.does(*site.check())
    assert "host       ocean1  10.1.0.1  libfabric, tcp  job\n" in text
    assert "attach     ocean1 at 10.1.0.1:4000, where the role model is expected\n" in text
    assert "network    0.0.0.0/0 has privacy at least\n" in text and "in 30 days" in text


def test_it_is_signed_again_in_its_place_or_elsewhere_and_its_hosts_stay(site: Site) -> None:
    said = site.does("sign", "--days", "1", "--output", "out.toml", "directory.toml")
    assert said.startswith("out.toml: 1 host and 1 network, until ")
    assert "in 24 h" in site.does("check", "--site-key", "site.pub", "out.toml")
    for name in ("directory.toml", "out.toml"):
        text = (site.place / name).read_text()
        assert text.count("issued =") == text.count("expires =") == text.count("# signature =") == 1
        assert HOSTS in text


def test_a_key_of_another_tool_does_as_well(site: Site) -> None:
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (site.place / "other.key").touch(0o600)
    (site.place / "other.key").write_bytes(secret)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (site.place / "other.pub").write_bytes(public)
    refused = site.refuses(70, "check", "--site-key", "other.pub", "directory.toml")
    assert "the site directory directory.toml is refused: its signature is not the site's" in refused
    site.does("sign", "--key", "other.key", "directory.toml")
    site.does("check", "--site-key", "other.pub", "directory.toml")


def test_what_is_unsigned_altered_or_over_is_refused(site: Site) -> None:
    path = site.place / "directory.toml"
    good = path.read_text()
    path.write_text(good.replace("tcp", "shm"))
    assert "it was altered after signing, or signed with another key" in site.refuses(70, *site.check())
    site.hosts()
    assert "no signature at its end; sign it with `gambeson directory sign`" in site.refuses(70, *site.check())
    now = int(time.time())
    old = sign_directory({"site_seed": SEED, "issued": now - 90, "expires": now - 60, "text": HOSTS})
    path.write_text(old["directory"])
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SEED)).public_key()
    (site.place / "site.pub").write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    refused = site.refuses(70, *site.check())
    assert "it expired 20" in refused and "get the present one, or sign it again" in refused


def test_mistakes_are_told(site: Site) -> None:
    assert "site.key is there already" in site.refuses(70, "keygen")
    assert "none.toml cannot be read (No such file" in site.refuses(69, "sign", "none.toml")
    assert "make one with `gambeson directory keygen`" in site.refuses(69, "sign", "--key", "no.key", "directory.toml")
    swapped = site.refuses(70, "check", "--site-key", "site.key", "directory.toml")
    assert "site.key is no Ed25519 public key in PEM" in swapped
    assert "site.pub is no Ed25519 private key in PEM" in site.refuses(
        70, "sign", "--key", "site.pub", "directory.toml"
    )
    assert "the site directory none.toml cannot be read" in site.refuses(
        70, "check", "--site-key", "site.pub", "none.toml"
    )
    (site.place / "site.key").chmod(0o640)
    assert "is open to others (mode 0640), who could sign" in site.refuses(70, "sign", "directory.toml")
    (site.place / "site.key").chmod(0o600)
    (site.place / "site.pub").chmod(0o666)
    assert "site.pub can be written by others (mode 0666)" in site.refuses(70, *site.check())
    before = (site.place / "directory.toml").read_text()
    # Lines are counted in the file as it is, whether it was signed before or not.
    for text in (HOSTS, before):
        site.hosts(text.replace('"tcp"', '"udp"'))
        line = 1 + text[: text.index('"tcp"')].count("\n")
        refused = site.refuses(78, "sign", "directory.toml")
        assert f'directory.toml:{line}: transport "udp" is unknown' in refused, refused
    assert site("directory", "sign", "--days", "0", "directory.toml").returncode == 64


def etc(site: Site, files: Sequence[str]) -> list[str]:
    """A command prefix under which /etc/gambeson has these files."""
    folder = site.place / "etc"
    (folder / "gambeson").mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache"):
        if Path("/etc", name).exists():
            (folder / name).write_bytes(Path("/etc", name).read_bytes())
    for name in files:
        (folder / "gambeson" / name).write_bytes((site.place / name).read_bytes())
    return ["unshare", "-m", "bash", "-c", f'mount --make-rprivate / && mount --bind {folder} /etc && exec "$@"', "sh"]


@needs_root
def test_a_job_goes_by_the_directory_of_its_host(site: Site, neighbours: Path) -> None:
    (site.place / "open.toml").write_text('protection = "integrity"\n')
    two = f"{neighbours} s 2 0 & {neighbours} s 2 1 && wait $!"
    job = ("run", "--policy", "open.toml", "--", "sh", "-c", two)
    assert "(integrity)" in site(*job).stdout
    under = etc(site, ["site.pub", "directory.toml"])
    for name in ("s.0", "s.1"):
        (site.place / name).unlink(missing_ok=True)
    done = site(*job, prefix=under)
    assert done.stdout.count("(privacy)") == 2 and done.returncode == 0, done
    found = site("doctor", "--json", "--", "true", prefix=under)
    findings = {finding["what"]: finding for finding in json.loads(found.stdout)["findings"]}
    assert findings["site"]["state"] == "ok" and "1 host and 1 network, until" in findings["site"]["text"]
    pair = ("--policy", "open.toml", "a=10.0.0.1", "b=10.0.0.2")
    text = site("policy", "check", *pair, prefix=under).stdout
    assert "a  b  integrity  by the default" in text
    text = site("policy", "check", "--class", "data", *pair, prefix=under).stdout
    assert "a  b  privacy    by the site directory's network 0.0.0.0/0" in text
    (site.place / "etc/gambeson/directory.toml").write_text(HOSTS)
    done = site(*job, prefix=under)
    assert done.returncode == 1 and "directory.toml is refused: it has no signature" in done.stderr, done
    findings = {
        finding["what"]: finding
        for finding in json.loads(site("doctor", "--json", "--", "true", prefix=under).stdout)["findings"]
    }
    assert findings["site"]["state"] == "note"
    assert "links that this job's programs open are refused: the site directory" in findings["site"]["text"]
