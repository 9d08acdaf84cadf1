"""Keys of hosts, people and the authority in tokens, which they never leave."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest
from harness.hosts import Hosts
from harness.mpis import clean_environment
from harness.site import Site
from harness.tokens import PIN, SOFTHSM, TPM2_PKCS11, Tpm, keys_of, soft_token, uri, write_pin

pytestmark = [pytest.mark.namespaces]

RULES = """
[[allow]]
identity = "user:root"
accounts = ["root"]
"""


@pytest.fixture
def site(two_hosts: Hosts, gambeson: Path, tmp_path: Path) -> Iterator[Site]:
    site = Site(two_hosts, gambeson, tmp_path / "site")
    for host in two_hosts.names:
        site.etc(host, "daemon.toml").parent.mkdir()
        site.etc(host, "daemon.toml").write_text(RULES)
    yield site


def openssl(path: Path, *words: str) -> str:
    command = ["openssl", "x509", "-in", str(path), "-noout", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def answers(site: Site, within: float = 15) -> None:
    """h2 starts a process for h1, soon."""
    deadline = time.monotonic() + within
    while (done := site.shell("h1", site.words(["exec", "h2", "--", "hostname"]))).stdout != "h2\n":
        assert time.monotonic() < deadline, done
        time.sleep(0.2)


def private_keys_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]


def test_a_host_with_its_key_in_a_token(site: Site) -> None:
    site.does("h1", "init")
    soft_token(site, "h2")
    host, key = site.etc("h2", "host.pem"), uri(SOFTHSM, "host")
    assert "certified  h2 until" in site.does("h1", "enroll", "--pkcs11", quote(key), "h2")
    assert host.read_text().splitlines()[0] == key and host.stat().st_mode & 0o777 == 0o600
    assert "prime256v1" in openssl(host, "-text") and "DNS:h2" in openssl(host, "-text")
    # It is in the token and nowhere else, and cannot leave that.
    assert private_keys_in(site.root / "h2") == []
    assert "sensitive, always sensitive, never extractable" in keys_of(site, "h2", SOFTHSM)
    with site.stays("h1", "daemon", "--log", "audit.log"), site.stays("h2", "daemon", "--log", "audit.log"):
        answers(site)
        # Renewed with the same key, by h2 that proves that it has it.
        serial, public = openssl(host, "-serial"), openssl(host, "-pubkey")
        assert "renewed, until" in site.does("h2", "site", "renew", "--now")
        assert openssl(host, "-serial") != serial and openssl(host, "-pubkey") == public
        assert host.read_text().splitlines()[0] == key
    # A key that is there is taken.
    done = site.shell("h1", site.words(["enroll", "--replace", "--pkcs11", quote(key), "h2"]))
    assert done.returncode == 0 and "token=site;object=host was there before, and is taken" in done.stderr, done
    assert openssl(host, "-pubkey") == public
    # Who steals the file has nothing: with another token, and with another key of that name in it.
    soft_token(site, "h1")
    stolen = site.root / "h1" / "home" / "stolen"
    shutil.copytree(host.parent, stolen)
    assert "has no key pkcs11:token=site;object=host" in site.refuses(70, "h1", "site", "renew", "--folder", "stolen")
    other = ["enroll", "--join", "-", "--folder", "own", "--pkcs11", quote(key)]
    assert "that is no token" in site.refuses(64, "h1", *other, stdin="none")
    with site.stays("h1", "enroll", "--token", "h1") as (_, token):
        site.does("h1", *other, stdin=token)
    assert "is not for the key pkcs11:" in site.refuses(70, "h1", "site", "renew", "--folder", "stolen")
    assert site.shell("h1", f"{site.gambeson} site show").stdout.endswith("host's key: /etc/gambeson/host.pem\n")


def test_what_is_wrong_with_a_token_is_said(site: Site) -> None:
    site.does("h1", "init")
    soft_token(site, "h2")
    host, key = site.etc("h2", "host.pem"), uri(SOFTHSM, "host")
    site.does("h1", "enroll", "--pkcs11", quote(key), "h2")
    text = host.read_text()

    def said(change: tuple[str, str] = ("", ""), status: int = 70) -> str:
        host.write_text(text.replace(*change, 1))
        refused = site.refuses(status, "h2", "daemon")
        assert "enroll again" not in refused
        return refused

    assert "/no.so cannot be loaded" in said((str(SOFTHSM), "/no.so"), 69)
    assert "cannot be loaded" in said((str(SOFTHSM), "/usr/lib/x86_64-linux-gnu/libm.so.6"), 69)
    assert 'has no token "elsewhere" now' in said(("token=site", "token=elsewhere"), 69)
    assert "has no key pkcs11:token=site;object=none" in said(("object=host", "object=none"))
    assert "no PKCS #11 URI of a key: it has the PIN" in said(("pin-source=file:/etc/gambeson/pin", "pin-value=1"))
    assert "nothing tells the PIN" in said(("&pin-source=file:/etc/gambeson/pin", ""))
    write_pin(site, "h2", "1234")
    assert "refuses the PIN in /etc/gambeson/pin" in said()
    site.etc("h2", "pin").chmod(0o640)
    assert "others may read or write it (mode 640)" in said()
    copied = site.root / "h2" / "etc" / "module.so"
    shutil.copy(SOFTHSM, copied)
    copied.chmod(0o666)
    assert "/etc/module.so can be written by others" in said((str(SOFTHSM), "/etc/module.so"))
    done = site.shell("h1", site.words(["init", "--host-key", "pkcs11:object=host"]))
    assert done.returncode == 64 and "it names no token" in done.stderr, done
    # A key that could leave the token is none for this.
    site.etc("h2", "pin").chmod(0o600)
    write_pin(site, "h2")
    make = f"pkcs11-tool --module {SOFTHSM} --token-label site --login --pin 4321 --keypairgen --key-type EC:prime256v1"
    assert site.shell("h2", f"{make} --label loose --extractable").returncode == 0
    assert "it can leave the token" in site.refuses(
        70, "h1", "enroll", "--replace", "--pkcs11", quote(uri(SOFTHSM, "loose")), "h2"
    )


def test_a_token_that_goes_away_and_comes_back(site: Site) -> None:
    site.does("h1", "init")
    token = soft_token(site, "h2")
    site.does("h1", "enroll", "--pkcs11", quote(uri(SOFTHSM, "host")), "h2")
    with site.stays("h2", "daemon", "--log", "audit.log") as (daemon, _):
        answers(site)
        command = [str(site.ssh), "h1", site.words(["exec", "h2", "--", "sh", "-c", quote("read line; echo $line")])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            time.sleep(1.5)
            token.rename(token.parent / "away")
            token.mkdir()
            assert site.shell("h1", site.words(["exec", "h2", "--", "hostname"])).returncode != 0
            # What is open goes on.
            assert running.communicate("still here\n", 10)[0] == "still here\n"
        assert daemon.poll() is None
        token.rmdir()
        (token.parent / "away").rename(token)
        answers(site)
        daemon.terminate()
        _, said = daemon.communicate(timeout=10)
    assert re.search("this end's key signs nothing: .*token", said), said


def at_terminal(site: Site, answer: str, *words: str) -> tuple[int, str]:
    """A command on h1 whose user is asked for a PIN: its status, and what the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(site.ssh, [str(site.ssh), "h1", site.words(words)], clean_environment())
    shown = b""
    while not shown.endswith(b'PIN of the token "site": '):
        shown += os.read(terminal, 1000)
    os.write(terminal, answer.encode() + b"\n")
    with contextlib.suppress(OSError):  # what a terminal says when its last process has gone
        while more := os.read(terminal, 1000):
            shown += more
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_a_person_with_a_key_in_a_token_is_asked_for_the_pin(site: Site) -> None:
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    soft_token(site, "h1")
    key, own = uri(SOFTHSM, "ada"), site.home("h1", "identity.pem")
    site.does("h1", "enroll", "--replace", "--user", "root", "--pkcs11", quote(key), "h1")
    with site.stays("h2", "daemon", "--log", "audit.log"):
        answers(site)
        own.write_text(own.read_text().replace("&pin-source=file:/etc/gambeson/pin", ""))
        status, shown = at_terminal(site, PIN, "exec", "h2", "--", "hostname")
        assert status == 0 and shown.endswith("h2\r\n") and PIN not in shown, shown
        status, shown = at_terminal(site, "1234", "exec", "h2", "--", "hostname")
        assert status == 70 and 'the token "site" refuses the PIN;' in shown, shown
        assert "nothing tells the PIN" in site.shell("h1", site.words(["exec", "h2", "--", "true"])).stderr


@pytest.fixture
def tpm(site: Site) -> Iterator[Tpm]:
    tpm = Tpm(site, "h1")
    with tpm.on_bus():
        yield tpm


def slow_signatures_keep_nobody_waiting(site: Site, tpm: subprocess.Popen[bytes]) -> None:
    """While the TPM of h1 stands still, its daemon goes on with what is open; who connects comes in after that."""
    login = [str(site.ssh), "h2"]
    echo = [*login, site.words(["exec", "h1", "--", "cat"])]
    with subprocess.Popen(echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write("before\n")
        assert running.stdout.readline() == "before\n"
        tpm.send_signal(signal.SIGSTOP)
        with subprocess.Popen([*login, site.words(["site", "renew", "--now"])]) as renewal:
            time.sleep(1)
            began = time.monotonic()
            running.stdin.write("meanwhile\n")
            assert running.stdout.readline() == "meanwhile\n" and time.monotonic() - began < 3
            assert renewal.poll() is None
            tpm.send_signal(signal.SIGCONT)
            assert renewal.wait(20) == 0
        running.stdin.close()


def test_a_site_with_its_keys_in_a_tpm(site: Site, tpm: Tpm) -> None:
    host, authority = uri(TPM2_PKCS11, "host"), uri(TPM2_PKCS11, "authority")
    renewal = site.words(["site", "renew", "--now"])
    with tpm.running():
        tpm.initialize()
        said = site.does("h1", "init", "--host-key", quote(host), "--authority-key", quote(authority))
        assert "authority's key stays in pkcs11:token=site;object=authority\n" in said
        places = json.loads(site.does("h1", "site", "show", "--json"))["keys"]
        assert places == {"authority": authority.split("?")[0], "host": host.split("?")[0]}
        assert private_keys_in(site.root / "h1" / "etc") == []
        assert keys_of(site, "h1", TPM2_PKCS11).count("sensitive, always sensitive, never extractable, local") == 2
        site.does("h1", "enroll", "h2")
        site.does("h1", "enroll", "--user", "root", "h2")
    # Without its key the daemon does not begin; with it, it goes on when that has come back.
    with site.stays("h1", "daemon", "--log", "audit.log") as (daemon, line):
        assert line == "" and daemon.wait(10) == 69
    with contextlib.ExitStack() as until_gone:
        process = until_gone.enter_context(tpm.running())
        with site.stays("h1", "daemon", "--log", "audit.log") as (daemon, _):
            serial = openssl(site.etc("h2", "host.pem"), "-serial")
            site.does("h2", "site", "renew", "--now")
            assert openssl(site.etc("h2", "host.pem"), "-serial") != serial
            slow_signatures_keep_nobody_waiting(site, process)
            until_gone.close()
            assert site.shell("h2", renewal).returncode != 0
            assert daemon.poll() is None
            with tpm.running():
                deadline = time.monotonic() + 15
                while (done := site.shell("h2", renewal)).returncode != 0:
                    assert time.monotonic() < deadline and daemon.poll() is None, (done, daemon.poll())
                    time.sleep(0.2)
