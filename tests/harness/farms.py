"""Farms in tests: how their programs begin, and managers, stations and keys on several hosts."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from harness.hosts import Hosts
from harness.jobs import Job
from harness.python import Package

HEAD = """
import asyncio, itertools, json, operator, os, signal, sys, threading, time
from gambeson import farm

def square(x): return x * x
def add(a, b): return a + b

def outcomes(results):
    return [str(type(r.error).__name__) if isinstance(r, farm.Failure) else r for r in results]
"""
"""What programs begin with."""

# Workers run under the agent of the namespaces in place of ssh, which gives them nothing of the environment.
HEAD_ON_HOSTS = """
import functools, json, os, sys, time
from gambeson import farm

# These hosts share their memory, which real ones do not.
Manager = functools.partial(farm.Manager, shm=False)

AGENT, FOLDER = {agent!r}, {folder!r}

def ssh(*names, worker=()):
    python = ["env", "PYTHONPATH=" + FOLDER, sys.executable, *worker]
    return farm.ssh(*names, slots=1, python=python, command=[AGENT])

def outcomes(results):
    return [str(r.error) if isinstance(r, farm.Failure) else r for r in results]

"""


class Farmer:
    """Runs managers on h1."""

    def __init__(self, site: Hosts, package: Package, gambeson: Path, folder: Path) -> None:
        self.site = site
        self.package = package
        self.gambeson = gambeson
        self.folder = folder

    def call(self, program: str) -> Job:
        head = HEAD_ON_HOSTS.format(agent=str(self.site.agent), folder=str(self.package.folder))
        path = self.folder / "program.py"
        path.write_text(head + program)
        return self.site.run("h1", [str(self.package.python), str(path)], env=self.package.environment(), timeout=90)

    def run(self, program: str) -> Any:
        job = self.call(program)
        assert job.status == 0, job.describe()
        return json.loads(job.stdout)

    @contextlib.contextmanager
    def capture(self, into: Path) -> Iterator[None]:
        """Writes all that goes between the hosts to a file."""
        command = ["ip", "netns", "exec", self.site.switch, "tcpdump", "-i", "to-h1", "-U", "-s", "0"]
        # With room for what is faster than the disk.
        command += ["-B", "32768", "-w", str(into)]
        tap = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert tap.stderr is not None
            for line in tap.stderr:
                if "listening on" in line:
                    break
            yield
            # It may keep what it saw last for a second.
            size = -1
            while size < (size := into.stat().st_size):
                time.sleep(1.2)
        finally:
            tap.terminate()
            _, said = tap.communicate()
        assert "\n0 packets dropped by kernel" in said, said


class Keys:
    """Identities as files, and their hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str) -> tuple[Path, str]:
        key = Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        path = self.folder / f"{name}.pem"
        path.touch(mode=0o600)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(builder.sign(key, None).public_bytes(Encoding.PEM) + private)
        return path, hashlib.sha256(public).hexdigest()


@contextlib.contextmanager
def station(farmer: Farmer, host: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A station that runs on a host."""
    words = [farmer.gambeson, "station", "--python", farmer.package.python, *arguments]
    command = [str(word) for word in words]
    made = subprocess.Popen(
        farmer.site.command(host, command), env=farmer.package.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert made.stdout is not None
        assert made.stdout.readline().startswith("station ")
        yield made
    finally:
        made.terminate()
        made.communicate(timeout=10)
