"""Chromium without a window on a site's host, with the certificates that a visitor has imported."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from harness.site import Site

_POLICY = {"AutoSelectCertificateForUrls": ['{"pattern":"https://[*.]","filter":{}}', '{"pattern":"*","filter":{}}']}


def missing() -> str | None:
    """What is not there; both are among the test packages of tools/bootstrap.sh."""
    return next((program for program in ("chromium", "certutil", "pk12util") if shutil.which(program) is None), None)


class Desk:
    """A visitor's desk on a host: a home with what the browser knows."""

    def __init__(self, site: Site, host: str, name: str) -> None:
        self.site, self.host = site, host
        self.home = site.root / host / "desks" / name
        self.store = f"sql:{self.home}/.pki/nssdb"
        (self.home / ".pki/nssdb").mkdir(parents=True)
        # Nobody is there to choose a certificate; and without its fonts the machine's letters are boxes.
        managed = site.root / host / "etc/chromium/policies/managed"
        if not managed.exists():
            managed.mkdir(parents=True)
            (managed / "certificates.json").write_text(json.dumps(_POLICY))
            for folder in filter(Path.is_dir, (Path("/etc/fonts"), Path("/etc/chromium.d"))):
                shutil.copytree(folder, site.root / host / "etc" / folder.name, symlinks=True)
        self.does("certutil", "-N", "--empty-password")

    def does(self, program: str, *words: str) -> None:
        command = [program, "-d", self.store, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done

    def takes(self, file: Path, passphrase: Path, pages: Path | None = None) -> None:
        """Imports a certificate, and what the browser is to trust."""
        self.does("pk12util", "-i", str(file), "-w", str(passphrase), "-K", "")
        if pages is not None:
            self.trusts(pages)

    def trusts(self, pages: Path) -> None:
        self.does("certutil", "-A", "-n", pages.stem, "-t", "C,,", "-i", str(pages))

    def browses(self, *options: str, url: str) -> subprocess.CompletedProcess[str]:
        words = [
            f"HOME={self.home}",
            "timeout 50 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars",
            "--disable-background-networking",
            f"--user-data-dir={self.home}/profile",
            *options,
            f"'{url}'",
        ]
        return self.site.shell(self.host, " ".join(words))

    def reads(self, url: str) -> str:
        """The page as the browser has it, in HTML; what the browser says if there is none."""
        done = self.browses("--dump-dom", url=url)
        return done.stdout + done.stderr

    def draws(self, url: str, picture: Path, *, width: int, height: int, dark: bool) -> None:
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        done = self.browses(scheme, f"--screenshot={picture}", f"--window-size={width},{height}", url=url)
        assert picture.is_file(), done
