"""docs/ten-minutes.md as it stands: its commands on hosts that are namespaces, and what it says that they print."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.hosts import hosts
from harness.mpis import ROOT, Mpi, clean_environment
from harness.site import Site

pytestmark = [pytest.mark.namespaces, pytest.mark.mpis("mpich")]

PAGE = ROOT / "docs" / "ten-minutes.md"
BLOCK = re.compile(r"^```(\w+) ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADA = 4242


class Reader(Site):
    """Does what the page says. Two of its lines are for hosts that namespaces are not: what they come to is done."""

    def __init__(self, site: Site, folder: Path, mpi: Mpi) -> None:
        self.hosts, self.gambeson, self.root, self.ssh = site.hosts, site.gambeson, site.root, site.ssh
        self.prefix = folder / "usr"
        self.daemons = contextlib.ExitStack()
        self.separate("/var/log", folder / "log")
        home = folder / "home" / "ada"
        home.mkdir(parents=True)
        os.chown(home, ADA, ADA)
        for host in self.hosts.names:
            with (self.root / host / "etc" / "passwd").open("a") as accounts:
                accounts.write(f"ada:x:{ADA}:{ADA}::/home/ada:/bin/bash\n")
        self.mount(f"{folder}/home", "/home")
        # PATH has what an administrator has installed; ssh's first word says who is to be there.
        script = self.ssh.read_text().replace("PATH=", f"PATH={self.prefix}/bin:{mpi.bin}:", 1)
        become = f'become=; case "$1" in ada@*) become="{_BECOME}" ;; esac; host=${{1#*@}}'
        script = script.replace("host=${1#*@}", become).replace('exec bash -c "$1"', 'exec $2 bash -c "$1"')
        self.ssh.write_text(script.replace('"$*"', '"$*" "$become"'))

    def does_block(self, where: str, script: str) -> str:
        *places, who = where.split()
        said = ""
        for host in places:
            text = re.sub(r"^make install$", shlex.join(self.install()), script, flags=re.MULTILINE)
            if text.startswith("systemctl enable --now gambesond"):
                said += self.serve(host)
                continue
            # ada has no ssh, and needs none.
            user, before = ("ada@", "") if who == "ada" else ("", f"export GAMBESON_SSH={self.ssh}\n")
            done = self.shell(user + host, f"set -e\n{before}{text}")
            said += done.stdout + done.stderr
            assert (done.returncode == 0) == (host != "h3"), f"{script}{done.stdout}{done.stderr}"
        return said

    def install(self) -> list[str]:
        """What `make install` does when all is built."""
        return [str(ROOT / "tools" / "install.sh"), str(self.gambeson.parent), str(self.prefix)]

    def serve(self, host: str) -> str:
        """What systemd would do: the unit's own command, where its condition holds."""
        unit = (self.prefix / "lib/systemd/system/gambesond.service").read_text()
        names = ("ConditionPathExists", "ExecStart")
        condition, command = (re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)[0] for name in names)
        assert self.shell(host, f"test -e {condition}").returncode == 0
        process = subprocess.Popen(
            [str(self.ssh), host, f"exec {command}"], env=clean_environment(), stdout=subprocess.PIPE, text=True
        )
        # The other way round than they are done.
        self.daemons.callback(process.communicate, timeout=20)
        self.daemons.callback(process.terminate)
        assert process.stdout is not None
        return process.stdout.readline()


_BECOME = f"setpriv --reuid {ADA} --regid {ADA} --clear-groups env -C /home/ada HOME=/home/ada LOGNAME=ada MPICH_CC=gcc"


@pytest.fixture
def reader(gambeson: Path, mpi: Mpi, tmp_path: Path) -> Iterator[Reader]:
    with hosts(tmp_path, 3) as made, tempfile.TemporaryDirectory() as open_folder:
        Path(open_folder).chmod(0o755)
        reader = Reader(Site(made, gambeson, tmp_path / "site"), Path(open_folder), mpi)
        with reader.daemons:
            yield reader


def says(printed: str, expected: str) -> bool:
    """Whether a line stands in what was printed; `...` in it is anything."""
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return any(re.fullmatch(pattern, line.strip()) for line in printed.splitlines())


def test_the_page(reader: Reader) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert sum(kind == "sh" for kind, _, _ in blocks) >= 9
    printed = ""
    for kind, where, text in blocks:
        if kind == "sh":
            printed = reader.does_block(where, text)
        else:
            missing = [line for line in text.splitlines() if not says(printed, line)]
            assert not missing, (missing, printed)


def test_what_is_shown_is_compared() -> None:
    assert says("h1\nh2  up since 2026", "h2  up ...") and not says("h1  up", "h1")
