"""A key server of a site's: PyKMIP's, with certificates of an authority of its own."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness.mpis import ROOT

PYTHON = ROOT / "build" / "venv-kmip" / "bin" / "python"
PROGRAMS = ROOT / "tests" / "programs"
# What PyKMIP has with ECDSA and without CBC.
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


class Authority:
    """Certifies key servers, and those who may use them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / "authority.pem"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        certificate = self._signed(self.name, self.key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and for whoever has this name, and its key: their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._signed(subject, key.public_key(), usages, hosts)
        paths = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].touch(0o600)
        pkcs8 = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()),
        )
        return paths

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key)
        made = made.serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
            now + datetime.timedelta(days=1)
        )
        for extension in extensions:
            made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(self.key, hashes.SHA256())


class KeyServer:
    """Where it listens, and what its clients show; it can be stopped and goes on with the keys that it has."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.authority = Authority(folder / "kms")
        self.certificate, self.key = self.authority.certify("keyd")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]

    def place(self, key: str = "", authority: Path | None = None, host: str = "127.0.0.1") -> str:
        """A master key there."""
        shown = f"certificate={self.certificate}&key={self.key}&authority={authority or self.authority.file}"
        return f"kmip://{host}:{self.port}/{key}?{shown}"

    def keeps(self, *words: str) -> str:
        """What is done with its keys behind the key service's back, by PyKMIP's client with the same certificate."""
        configuration = self.folder / "client.conf"
        configuration.write_text(
            f"[client]\nhost=127.0.0.1\nport={self.port}\nkeyfile={self.key}\ncertfile={self.certificate}\n"
            f"ca_certs={self.authority.file}\ncert_reqs=CERT_REQUIRED\nssl_version=PROTOCOL_TLSv1_2\n"
        )
        command = [str(PYTHON), str(PROGRAMS / "kmip_keys.py"), str(configuration), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done
        return done.stdout.strip()

    @contextlib.contextmanager
    def running(self, kmip: str = "1.4,2.0", tls: str = "1.2", authority: Authority | None = None) -> Iterator[None]:
        certificate, key = (authority or self.authority).certify("server")
        configuration, log = self.folder / "server.conf", self.folder / "server.log"
        configuration.write_text(
            f"[server]\nhostname=127.0.0.1\nport={self.port}\ncertificate_path={certificate}\nkey_path={key}\n"
            f"ca_path={self.authority.file}\nauth_suite=TLS1.2\npolicy_path=\ntls_cipher_suites={SUITE}\n"
            f"logging_level=DEBUG\ndatabase_path={self.folder / 'keys.db'}\n"
        )
        command = [str(PYTHON), str(PROGRAMS / "kmip_server.py"), str(configuration), str(log), kmip, tls]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                deadline = time.monotonic() + 30
                while not self._answers():
                    assert time.monotonic() < deadline, "the key server does not begin"
                    assert process.poll() is None, process.stderr and process.stderr.read()
                    time.sleep(0.05)
                yield
            finally:
                process.kill()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
