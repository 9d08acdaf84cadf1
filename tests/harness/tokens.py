"""Tokens of hosts in namespaces: SoftHSM, and a TPM 2.0 in software behind its resource manager."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.site import Site

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
SOFTHSM = LIBRARIES / "softhsm/libsofthsm2.so"
TPM2_PKCS11 = LIBRARIES / "pkcs11/libtpm2_pkcs11.so"
PIN = "4321"


def uri(module: Path, name: str, token: str = "site") -> str:
    """A key of a token, with the PIN where hosts have it."""
    return f"pkcs11:token={token};object={name}?module-path={module}&pin-source=file:/etc/gambeson/pin"


def write_pin(site: Site, host: str, pin: str = PIN) -> None:
    file = site.etc(host, "pin")
    file.parent.mkdir(exist_ok=True)
    file.touch(0o600)
    file.write_text(pin + "\n")


def soft_token(site: Site, host: str) -> Path:
    """A token named "site" on a host; the folder that it is in, away from the host's files."""
    folder = site.root / f"{host}-token"
    folder.mkdir()
    settings = site.root / host / "etc" / "softhsm" / "softhsm2.conf"
    settings.parent.mkdir()
    settings.write_text(f"directories.tokendir = {folder}\nobjectstore.backend = file\nlog.level = ERROR\n")
    done = site.shell(host, f"softhsm2-util --init-token --free --label site --so-pin 12345678 --pin {PIN}")
    assert done.returncode == 0, done
    write_pin(site, host)
    return folder


def keys_of(site: Site, host: str, module: Path) -> str:
    """What the token of a host says of its private keys."""
    done = site.shell(host, f"pkcs11-tool --module {module} --token-label site --login --pin {PIN} -O --type privkey")
    assert done.returncode == 0, done
    return done.stdout


class Tpm:
    """A TPM 2.0 of a host, with a token named "site" in it, behind its resource manager; it can be stopped."""

    def __init__(self, site: Site, host: str) -> None:
        self.folder = site.root / f"{host}-tpm"
        self.folder.mkdir()
        self.bus = f"unix:path={self.folder}/bus"
        self.site, self.host = site, host
        (site.root / host / "etc" / "environment").write_text(
            f"DBUS_SESSION_BUS_ADDRESS={self.bus}\nTPM2TOOLS_TCTI=tabrmd:bus_type=session\n"
            "TPM2_PKCS11_TCTI=tabrmd:bus_type=session\n"
        )

    def initialize(self) -> None:
        """As docs/site.md says."""
        write_pin(self.site, self.host)
        script = f"""
            mkdir /etc/tpm2_pkcs11 && tpm2_ptool init --path /etc/tpm2_pkcs11 &&
            tpm2_ptool addtoken --pid 1 --label site --sopin 12345678 --userpin {PIN} --path /etc/tpm2_pkcs11
        """
        done = self.site.shell(self.host, script)
        assert done.returncode == 0, done

    @contextlib.contextmanager
    def on_bus(self) -> Iterator[None]:
        """The bus by which the resource manager is asked: it outlives that."""
        bus = ["dbus-daemon", "--session", "--nofork", f"--address={self.bus}"]
        with _running(bus, (self.folder / "bus").exists):
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The TPM's process."""
        state, socket = self.folder / "state", self.folder / "socket"
        state.mkdir(exist_ok=True)
        control = Path(f"{socket}.ctrl")
        control.unlink(missing_ok=True)
        tpm = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", "--flags", "not-need-init,startup-clear"]
        tpm += ["--ctrl", f"type=unixio,path={control}", "--server", f"type=unixio,path={socket}"]
        manager = ["env", f"DBUS_SESSION_BUS_ADDRESS={self.bus}", "tpm2-abrmd", "--allow-root", "--session"]
        manager.append(f"--tcti=swtpm:path={socket}")
        with _running(tpm, control.exists) as process, _running(manager, self._answers):
            yield process

    def _answers(self) -> bool:
        return self.site.shell(self.host, "tpm2_getcap handles-transient").returncode == 0


@contextlib.contextmanager
def _running(command: list[str], ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent) as process:
        try:
            deadline = time.monotonic() + 20
            while not ready():
                assert time.monotonic() < deadline and process.poll() is None, command
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
