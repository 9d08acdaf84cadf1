"""A site's authority: hosts and people are certified over ssh and by token, renewed, and revoked."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from harness.hosts import Hosts
from harness.site import Site

pytestmark = [pytest.mark.namespaces]


def openssl(*words: str) -> str:
    return subprocess.run(["openssl", *words], capture_output=True, text=True, check=True, timeout=20).stdout


def certificate(path: Path) -> str:
    return openssl("x509", "-in", str(path), "-noout", "-text")


def serial(path: Path) -> str:
    return openssl("x509", "-in", str(path), "-noout", "-serial")


def public_key(path: Path) -> str:
    return openssl("pkey", "-in", str(path), "-pubout")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.fixture
def site(two_hosts: Hosts, gambeson: Path, tmp_path: Path) -> Site:
    return Site(two_hosts, gambeson, tmp_path / "site")


def test_hosts_and_people_over_ssh(site: Site) -> None:
    said = site.does("h1", "init", "--name", "ocean", "--alias", "h1.cluster")
    assert "gambeson enroll HOST" in said and said.count("certified  ") == 2
    host, own = site.etc("h1", "host.pem"), site.home("h1", "identity.pem")
    assert [mode(path) for path in (host, own, host.parent / "authority/authority.key")] == [0o600] * 3
    assert mode(host.parent / "authority") == 0o700
    text = certificate(host)
    assert "DNS:h1, DNS:h1.cluster" in text and "URI:gambeson:role:host, URI:gambeson:role:authority" in text
    authority = certificate(host.parent / "authority.pem")
    assert "CA:TRUE, pathlen:0" in authority and "Certificate Sign" in authority and "ED25519" in authority
    assert "is a host of a site already" in site.refuses(70, "h1", "init")

    said = site.does("h1", "enroll", "--json", "h2")
    assert json.loads(said)["names"] == ["h2"]
    there = site.etc("h2", "host.pem")
    assert mode(there) == 0o600
    openssl("verify", "-x509_strict", "-CAfile", str(site.etc("h1", "authority.pem")), str(there))
    text = certificate(there)
    assert "DNS:h2, URI:gambeson:role:host\n" in text and "CA:FALSE" in text
    assert "TLS Web Client Authentication, TLS Web Server Authentication" in text
    # Its key was made there and is nowhere else.
    key = openssl("pkey", "-in", str(there))
    having = [
        path for path in site.root.rglob("*") if path.is_file() and key.splitlines()[1] in path.read_text("latin-1")
    ]
    assert having == [there]

    assert "h2 was not enrolled: Gambeson says there why" in site.refuses(70, "h1", "enroll", "h2").splitlines()[-1]
    before = public_key(there)
    site.does("h1", "enroll", "--replace", "h2")
    assert public_key(there) != before
    # The administrator says who it is, and not the host.
    assert 'calls itself "h2"' in site.refuses(70, "h1", "enroll", "--replace", "10.77.0.2", "--alias", "h9")

    site.does("h1", "enroll", "--user", "ada", "root@h2")
    text = certificate(site.home("h2", "identity.pem"))
    assert "DNS:" not in text and "URI:gambeson:role:user, URI:gambeson:role:user:ada\n" in text
    assert "TLS Web Client Authentication\n" in text and "Server" not in text
    shown = json.loads(site.does("h1", "site", "show", "--json"))
    assert shown["site"] == "ocean" and shown["days"] == 7
    assert sorted(one["name"] for one in shown["certified"]) == ["h1", "h2", "h2", "user:ada", "user:root"]
    assert site.does("h1", "site", "show").count("until") == 5
    assert "run this on the host where" in site.refuses(69, "h2", "site", "show")


def test_a_host_that_does_not_answer(site: Site) -> None:
    site.does("h1", "init")
    site.ssh.write_text(
        site.ssh.read_text().replace("host=${", 'if [ "$1" = h3 ]; then echo hello; exit 5; fi; host=${', 1)
    )
    assert "h3 does not answer as Gambeson does" in site.refuses(69, "h1", "enroll", "h3")
    assert "/nowhere/ssh cannot be started" in site.refuses(69, "h1", "enroll", "--ssh", "/nowhere/ssh", "h2")
    assert "is no name" in site.refuses(64, "h1", "enroll", "--alias", "'*.cluster'", "h2")


def test_by_token(site: Site) -> None:
    site.does("h1", "init")
    with site.stays("h1", "enroll", "--token", "h2") as (offer, token):
        assert re.fullmatch(r"h1:\d+/[\w-]{43}", token)
        wrong = token[:-43] + "A" * 43
        assert "the token is not taken at h1:" in site.refuses(70, "h2", "enroll", "--join", "-", stdin=wrong)
        assert not site.etc("h2", "host.pem").exists()
        assert "certified  h2 until" in site.does("h2", "enroll", "--join", "-", stdin=token)
        assert offer.wait(20) == 0
        assert "nobody takes the token" in site.refuses(69, "h2", "enroll", "--replace", "--join", "-", stdin=token)
    openssl("verify", "-CAfile", str(site.etc("h1", "authority.pem")), str(site.etc("h2", "host.pem")))
    assert "is there already" in site.refuses(70, "h2", "enroll", "--join", "-", stdin=token)
    assert "that is no token" in site.refuses(64, "h2", "enroll", "--replace", "--join", "h1:7/short")

    with site.stays("h1", "enroll", "--token", "h9", "--listen", "10.77.0.1:0") as (_, token):
        assert token.startswith("10.77.0.1:")
        refused = site.refuses(70, "h2", "enroll", "--replace", "--join", "-", stdin=token)
        assert 'calls itself "h2", and is to be certified as h9' in refused
    with site.stays("h1", "enroll", "--token", "--user", "ada", "h2") as (offer, token):
        site.does("h2", "enroll", "--person", "--join", "-", stdin=token)
        assert offer.wait(20) == 0
    assert "URI:gambeson:role:user:ada" in certificate(site.home("h2", "identity.pem"))
    assert "nobody has used the token" in site.refuses(69, "h1", "enroll", "--token", "h2", "--minutes", "0.01")


def test_renewed_and_revoked(site: Site) -> None:
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    there = site.etc("h2", "host.pem")
    first, key = serial(there), public_key(there)
    assert "cannot be asked" in site.refuses(69, "h2", "site", "renew", "--now")
    # The authority's own host needs nobody who serves.
    assert site.does("h1", "site", "renew", "--now").count("renewed, until") == 2
    with site.stays("h1", "daemon") as (_, line):
        assert line == "gambesond: listening on 0.0.0.0:7200"
        assert "valid until" in site.does("h2", "site", "renew")
        assert serial(there) == first
        assert "renewed, until" in site.does("h2", "site", "renew", "--now")
        assert serial(there) != first and public_key(there) == key
        assert "DNS:h2, URI:gambeson:role:host\n" in certificate(there)
        assert "h2 is renewed no more; its certificate is valid until" in site.does("h1", "site", "revoke", "h2")
        second = serial(there)
        assert "h2 was revoked" in site.refuses(70, "h2", "site", "renew", "--now")
        assert serial(there) == second
        assert 'nobody is certified as "h2"' in site.refuses(64, "h1", "site", "revoke", "h2")
        site.does("h1", "enroll", "--replace", "h2")
        site.does("h2", "site", "renew", "--now")
        assert "revoked" in site.does("h1", "site", "show")
        # Another site's authority at that address is none.
        shutil.copytree(site.etc("h2", ""), site.root / "kept")
        shutil.rmtree(site.etc("h2", ""))
        site.does("h2", "init", "--address", "h1:7200", "--folder", "/etc/gambeson")
        shutil.rmtree(site.etc("h2", "authority"))
        assert "says no: " in site.refuses(70, "h2", "site", "renew", "--now")


def foreign(
    name: str, others: x509.Certificate | None, signer: Ed25519PrivateKey, key: Ed25519PrivateKey
) -> x509.Certificate:
    """A certificate of another authority: its own, or a host's."""
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(others.subject if others else subject)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=others is None, path_length=None), critical=True)
    if others:
        names = [x509.DNSName(name), x509.UniformResourceIdentifier("gambeson:role:host")]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(signer, None)


def test_another_authority(site: Site) -> None:
    """Its hosts talk to ours where it was appended; renewing is for who issued."""
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    theirs, own = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    authority = foreign("Their authority", None, theirs, theirs)
    host = foreign("h2", authority, theirs, own)
    key = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    site.etc("h2", "host.pem").write_bytes(key + host.public_bytes(Encoding.PEM))
    with site.stays("h1", "daemon"):
        assert "the other end refuses this one" in site.refuses(70, "h2", "site", "renew", "--now")
    with site.etc("h1", "authority.pem").open("ab") as accepted:
        accepted.write(authority.public_bytes(Encoding.PEM))
    with site.stays("h1", "daemon"):
        assert "this authority never certified the key" in site.refuses(70, "h2", "site", "renew", "--now")
    # What is enrolled from now on accepts both.
    site.does("h1", "enroll", "--replace", "h2")
    assert site.etc("h2", "authority.pem").read_text().count("BEGIN CERTIFICATE") == 2


def test_short_lives(site: Site) -> None:
    """Nine seconds: the authority's host renews its own, and who does not ask in time has to enroll again."""
    site.does("h1", "init", "--days", "0.00011")
    site.does("h1", "enroll", "h2")
    with site.stays("h1", "daemon") as (_, line):
        assert "listening" in line
        first = serial(site.etc("h1", "host.pem"))
        time.sleep(11)
        assert serial(site.etc("h1", "host.pem")) != first
        refused = site.refuses(70, "h2", "site", "renew")
        assert "expired" in refused and "enroll again, with --replace" in refused
        site.does("h1", "enroll", "--replace", "h2")
        time.sleep(7)
        assert "renewed, until" in site.does("h2", "site", "renew")


def test_others_have_no_keys(site: Site) -> None:
    site.does("h1", "init")
    for name in ("host.pem", "authority/authority.key", "authority/issued.jsonl"):
        assert "Permission denied" in site.shell("h1", f"setpriv --reuid 65534 cat /etc/gambeson/{name}").stderr
    site.etc("h1", "authority/authority.key").chmod(0o640)
    assert "is open to others (mode 0640)" in site.refuses(70, "h1", "enroll", "h2")
    site.etc("h1", "host.pem").chmod(0o644)
    assert "is open to others (mode 0644)" in site.refuses(70, "h1", "site", "renew")


def test_a_site_of_ones_own(site: Site) -> None:
    mine = f"mount -t tmpfs tmpfs /mnt && cp {site.gambeson} /mnt/gambeson && mkdir /mnt/me && chown 65534 /mnt/me"
    person = "setpriv --reuid 65534 --clear-groups env HOME=/mnt/me LOGNAME=me"
    done = site.shell("h1", f"{mine}; {person} /mnt/gambeson init --json && {person} /mnt/gambeson site renew --now")
    assert done.returncode == 0, done
    assert done.stdout.count("/mnt/me/.config/gambeson/identity.pem") == 2
    assert done.stdout.count("renewed, until") == 2
    assert not site.etc("h1", "").exists()


def test_a_full_disk_leaves_the_old_identity_whole(site: Site) -> None:
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    with site.stays("h1", "daemon"):
        renewal = f"""
            cp -a /etc/gambeson kept; mount -t tmpfs -o size=64k tmpfs /etc/gambeson; cp -a kept/. /etc/gambeson
            dd if=/dev/zero of=/etc/gambeson/fill bs=4k 2>/dev/null
            {site.gambeson} site renew --now; echo "status $?"
            diff -r kept /etc/gambeson; rm /etc/gambeson/fill
            {site.gambeson} site renew --now && echo again
        """
        done = site.shell("h2", renewal)
    assert "/etc/gambeson/host.pem cannot be written (No space left on device" in done.stderr, done
    lines = done.stdout.splitlines()
    assert lines[0] == "status 69" and lines[1] == "Only in /etc/gambeson: fill" and lines[-1] == "again", done
    # What cannot be written down is not handed out; a site that cannot be made whole is not made.
    full = f"""
        mount -t tmpfs -o size=64k tmpfs /mnt; dd if=/dev/zero of=/mnt/fill bs=4k count=14 2>/dev/null
        {site.gambeson} init --folder /mnt/site; echo "status $?"; ls -A /mnt/site
    """
    done = site.shell("h1", full)
    assert done.stdout.split("\n", 1) == ["status 69", ""], done
