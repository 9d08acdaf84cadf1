"""Master keys of the key service: in a file, in tokens, in a key server; and what is said when something is wrong."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from harness.hosts import Hosts
from harness.kmip import PYTHON, Authority, KeyServer
from harness.site import Site
from harness.tokens import PIN, SOFTHSM, TPM2_PKCS11, Tpm, uri

PASSPHRASE = "several words of mine"


class Service:
    """What has a database key to wrap, and the file of a passphrase."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.passphrase = folder / "passphrase"
        self.writes(self.passphrase, PASSPHRASE)
        self.environment = {"PATH": os.environ["PATH"], "SOFTHSM2_CONF": str(folder / "softhsm2.conf")}

    def writes(self, path: Path, text: str) -> None:
        path.touch(0o600)
        path.write_text(text + "\n")

    def run(self, what: str, place: str) -> subprocess.CompletedProcess[str]:
        words = [str(self.program), what, place, str(self.passphrase), str(self.folder / "wrapped")]
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=90, check=False)

    def does(self, what: str, place: str) -> str:
        done = self.run(what, place)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, what: str, place: str) -> str:
        done = self.run(what, place)
        assert done.returncode == status and done.stderr.startswith("gambeson: "), done
        return done.stderr

    def makes(self, place: str) -> str:
        """A master key there: its place, as it is called from then on."""
        name, made = self.does("make", place).splitlines()
        assert made == "made"
        return name

    def wraps_and_unwraps(self, place: str) -> None:
        self.does("wrap", place)
        assert self.does("unwrap", place) == "unwrapped\n"


@pytest.fixture
def service(gambeson: Path, tmp_path: Path) -> Service:
    return Service(gambeson.parent / "examples" / "master_key", tmp_path)


def test_a_key_in_a_file(service: Service) -> None:
    path = service.folder / "master-key"
    place = f"file:{path}"
    assert service.makes(place) == place
    assert path.stat().st_mode & 0o777 == 0o600
    service.wraps_and_unwraps(place)
    assert service.does("make", place).splitlines() == [place, "was there"]
    content = path.read_bytes()

    service.writes(service.passphrase, "other words of mine")
    assert "the passphrase is not that of the master key" in service.refuses(70, "unwrap", place)
    service.passphrase.unlink()
    assert "nobody gives its passphrase" in service.refuses(70, "unwrap", place)
    service.writes(service.passphrase, PASSPHRASE)
    path.chmod(0o640)
    assert "others may read or write it (mode 640)" in service.refuses(70, "unwrap", place)
    path.chmod(0o600)
    path.write_bytes(content[:-1])
    assert "holds no master key of this Gambeson's" in service.refuses(70, "unwrap", place)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "or the file was altered" in service.refuses(70, "unwrap", place)
    path.unlink()
    assert "there is no master key" in service.refuses(70, "unwrap", place)
    # Another one under the same passphrase is another one.
    service.makes(place)
    assert "wrapped by another master key" in service.refuses(70, "unwrap", place)

    assert "say the whole path" in service.refuses(64, "make", "file:master-key")
    assert "its folder" in service.refuses(70, "make", f"file:{service.folder}/none/master-key")
    service.writes(service.passphrase, "short")
    assert "fewer than 8 bytes" in service.refuses(70, "make", f"file:{service.folder}/short")
    assert not (service.folder / "short").exists()


@pytest.fixture
def token(service: Service) -> str:
    """SoftHSM's, with nothing in it yet: a place for a key."""
    tokens = service.folder / "tokens"
    tokens.mkdir()
    settings = service.folder / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n")
    make = ["softhsm2-util", "--init-token", "--free", "--label", "site", "--so-pin", "12345678", "--pin", PIN]
    subprocess.run(make, env=service.environment, check=True, capture_output=True, timeout=20)
    service.writes(service.folder / "pin", PIN)
    return f"pkcs11:token=site;object=master?module-path={SOFTHSM}&pin-source=file:{service.folder}/pin"


def pkcs11_tool(service: Service, *words: str, module: Path = SOFTHSM) -> str:
    command = ["pkcs11-tool", "--module", str(module), "--token-label", "site", "--login", "--pin", PIN, *words]
    done = subprocess.run(command, env=service.environment, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return done.stdout


def test_a_key_in_a_token(service: Service, token: str) -> None:
    assert "has no secret key pkcs11:token=site;object=master" in service.refuses(70, "wrap", token)
    assert service.makes(token) == token
    assert "sensitive, always sensitive, never extractable" in pkcs11_tool(service, "-O", "--type", "secrkey")
    service.wraps_and_unwraps(token)
    assert service.does("make", token).splitlines() == [token, "was there"]
    secret = token.replace("object=master", "object=master;type=secret-key")
    assert service.does("unwrap", secret) == "unwrapped\n"
    private = token.replace("object=master", "object=master;type=private")
    assert "has to be secret-key here" in service.refuses(64, "unwrap", private)

    tokens, away = service.folder / "tokens", service.folder / "away"
    tokens.rename(away)
    tokens.mkdir()
    assert 'has no token "site" now' in service.refuses(69, "unwrap", token)
    tokens.rmdir()
    away.rename(tokens)
    service.writes(service.folder / "pin", "1234")
    assert f"refuses the PIN in {service.folder}/pin" in service.refuses(70, "unwrap", token)
    service.writes(service.folder / "pin", PIN)
    assert "/no.so cannot be loaded" in service.refuses(69, "unwrap", token.replace(str(SOFTHSM), "/no.so"))
    # Another key there has not wrapped this one.
    other = token.replace("object=master", "object=other")
    service.makes(other)
    assert "wrapped by another master key" in service.refuses(70, "unwrap", other)
    # A key that could leave, or is for something else, is none for this.
    pkcs11_tool(service, "--keygen", "--key-type", "GENERIC:32", "--label", "loose", "--extractable")
    assert "it can leave the token" in service.refuses(70, "wrap", token.replace("object=master", "object=loose"))
    pkcs11_tool(service, "--keygen", "--key-type", "AES:32", "--label", "cipher", "--sensitive")
    assert "it is for a cipher" in service.refuses(70, "wrap", token.replace("object=master", "object=cipher"))
    # A key that was deleted is gone.
    pkcs11_tool(service, "--delete-object", "--type", "secrkey", "--label", "master")
    assert "has no secret key" in service.refuses(70, "unwrap", token)


@pytest.fixture
def server(service: Service) -> KeyServer:
    if not PYTHON.is_file():
        pytest.fail(f"no {PYTHON}: run tools/bootstrap.sh test")
    return KeyServer(service.folder / "server")


@pytest.mark.parametrize(("kmip", "tls"), [("1.4", "1.2"), ("2.0", "1.3"), ("1.0,1.1,1.2,1.3,1.4,2.0", "1.2")])
def test_a_key_in_a_key_server(service: Service, server: KeyServer, kmip: str, tls: str) -> None:
    with server.running(kmip, tls):
        place = service.makes(server.place())
        assert place == server.place("1")
        service.wraps_and_unwraps(place)
        # It has never left the server: nothing was fetched.
        log = (server.folder / "server.log").read_text()
        assert "Processing operation: Encrypt" in log and "Processing operation: Get\n" not in log
        assert service.does("make", place).splitlines() == [place, "was there"]
        # Another key there has not wrapped this one.
        other = service.makes(server.place())
        assert other == server.place("2")
        service.refuses(70, "unwrap", other)
    assert "does not answer: Connection refused" in service.refuses(69, "unwrap", place)
    with server.running(kmip, tls):
        assert service.does("unwrap", place) == "unwrapped\n"


def test_a_key_that_its_server_gives_away(service: Service, server: KeyServer) -> None:
    with server.running():
        place = server.place(server.keeps("register", "EXPORT"))
        assert "is not active (not activated yet)" in service.refuses(70, "wrap", place)
        server.keeps("activate", "1")
        service.wraps_and_unwraps(place)
        log = (server.folder / "server.log").read_text()
        assert "Processing operation: Get\n" in log and "Processing operation: Encrypt" not in log


def test_what_is_wrong_with_a_key_server_is_said(service: Service, server: KeyServer) -> None:
    strangers = Authority(service.folder / "strangers")
    with server.running():
        place = service.makes(server.place())
        service.wraps_and_unwraps(place)
        assert "names no key in the server" in service.refuses(64, "wrap", server.place())
        assert f"that nobody in {strangers.file} has signed" in service.refuses(
            69, "unwrap", server.place("1", authority=strangers.file)
        )
        assert "a certificate for another host" in service.refuses(69, "unwrap", server.place("1", host="localhost"))
        assert "has the key 9 no more, or not for whom" in service.refuses(70, "unwrap", server.place("9"))

        # Whom the server does not know, and who has no key there.
        mine, own = server.certificate, server.key
        server.certificate, server.key = strangers.certify("keyd")
        assert "the key server 127.0.0.1" in (said := service.refuses(69, "unwrap", server.place("1")))
        assert f"does it know the certificate in {server.certificate}?" in said
        server.certificate, server.key = server.authority.certify("somebody")
        refused = service.refuses(70, "unwrap", server.place("1"))
        assert (
            "refuses GetAttributes for the key 1" in refused and f"the certificate in {server.certificate}" in refused
        )
        server.certificate = mine
        assert f"is {server.key} its key?" in service.refuses(70, "unwrap", server.place("1"))
        server.key = own
        own.chmod(0o640)
        assert "others may read or write it" in service.refuses(70, "unwrap", place)
        own.chmod(0o600)
        assert "holds no certificate in PEM" in service.refuses(70, "unwrap", server.place("1", authority=own))

        server.keeps("revoke", "1")
        assert "is not active (deactivated)" in service.refuses(70, "unwrap", place)
        server.keeps("destroy", "1")
        assert "has the key 1 no more" in service.refuses(70, "unwrap", place)
    with server.running(authority=strangers):
        assert f"that nobody in {server.authority.file} has signed" in service.refuses(69, "unwrap", place)
    with server.running("1.0,1.1,1.2,1.3"):
        assert "speaks none of KMIP 1.4, 2.0 and 2.1" in service.refuses(70, "unwrap", place)


def test_a_host_that_is_no_key_server(service: Service, server: KeyServer) -> None:
    """It speaks TLS with the right certificate, and then something else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server.authority.certify("server"))
    answers = [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\x42\x00\x7b\x01\xff\xff\xff\xff" * 9, b""]
    with socket.create_server(("127.0.0.1", server.port)) as listening:

        def answer() -> None:
            for one in answers:
                connection, _ = listening.accept()
                with context.wrap_socket(connection, server_side=True) as stream:
                    stream.recv(1000)
                    stream.sendall(one)

        answering = threading.Thread(target=answer)
        answering.start()
        for one in answers:
            said = service.refuses(69, "unwrap", server.place("1"))
            assert ("what it answers is no KMIP" if one else "without an answer") in said
        answering.join()


@pytest.mark.namespaces
def test_a_key_in_a_tpm(two_hosts: Hosts, gambeson: Path, tmp_path: Path) -> None:
    site = Site(two_hosts, gambeson, tmp_path / "site")
    tpm = Tpm(site, "h1")
    program = gambeson.parent / "examples" / "master_key"
    place = uri(TPM2_PKCS11, "master")

    def run(what: str) -> subprocess.CompletedProcess[str]:
        return site.shell("h1", f"{program} {what} '{place}' /dev/null {tmp_path}/wrapped")

    with tpm.on_bus():
        with tpm.running():
            tpm.initialize()
            refused = run("make")
            assert refused.returncode == 70 and "tpm2_ptool addkey --algorithm=hmac:sha256" in refused.stderr, refused
            # As docs/master-keys.md says.
            add = "tpm2_ptool addkey --algorithm=hmac:sha256 --label=site --key-label=master --userpin="
            done = site.shell("h1", f'{add}"$(cat /etc/gambeson/pin)" --path /etc/tpm2_pkcs11')
            assert done.returncode == 0, done
            assert run("make").stdout.splitlines() == [place, "was there"]
            assert run("wrap").returncode == 0
            assert run("unwrap").stdout == "unwrapped\n"
        away = run("unwrap")
        assert away.returncode == 69 and str(TPM2_PKCS11) in away.stderr, away
        with tpm.running():
            assert run("unwrap").stdout == "unwrapped\n"
