"""A site of hosts in namespaces, each with an /etc and a home of its own, and Gambeson on each of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.hosts import Hosts
from harness.mpis import clean_environment

# Hosts have an /etc and a home of their own, and a /run if there is a folder for it.
# `script HOST WORDS...` is what ssh does, and a login on that host, which takes /etc/environment.
_LOGIN = """#!/bin/bash
host=${{1#*@}}; shift
case "$host" in 10.77.0.*) host=h${{host##*.}} ;; esac
exec ip netns exec "{prefix}-$host" unshare -m -u -- env -i HOME="{root}/$host/home" LOGNAME=root \\
  PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  bash -c 'mount --bind "{root}/$0/etc" /etc && \\
    if [ -d "{root}/$0/run" ]; then mkdir -p "{root}/$0/run/netns" && \\
      mount --rbind /run/netns "{root}/$0/run/netns" && mount --rbind "{root}/$0/run" /run; fi \\
    && hostname "$0" && cd "$HOME" && set -a && . /etc/environment && set +a && exec bash -c "$1"' "$host" "$*"
"""

_NAMED = '&& hostname "$0"'


class Site:
    """h1, h2 and h3, and Gambeson on each of them."""

    def __init__(self, hosts: Hosts, gambeson: Path, root: Path) -> None:
        self.hosts, self.gambeson, self.root = hosts, gambeson, root
        for host in hosts.names:
            (root / host / "home").mkdir(parents=True)
            (root / host / "etc").mkdir()
            for name in ("passwd", "group", "nsswitch.conf"):
                shutil.copy(Path("/etc") / name, root / host / "etc" / name)
            (root / host / "etc" / "environment").touch()
            shutil.copy(Path("/etc/netns") / hosts.namespace(host) / "hosts", root / host / "etc" / "hosts")
        self.ssh = root / "ssh"
        self.ssh.write_text(_LOGIN.format(prefix=hosts.prefix, root=root))
        self.ssh.chmod(0o755)

    def separate(self, place: str, folder: Path) -> None:
        """Gives each host a /dev/shm, or what else the place is, of its own: below this folder of the machine's."""
        for host in self.hosts.names:
            (folder / host).mkdir(parents=True)
            (folder / host).chmod(0o1777 if place == "/dev/shm" else 0o755)
        self.mount(f'"{folder}/$0"', place)
        # Seen from another host what is this one's would be gone.
        script = self.ssh.read_text()
        self.ssh.write_text(script.replace("exec ip", f"exec nsenter -m -t {os.getpid()} ip", 1))

    def mount(self, folder: str, place: str) -> None:
        """Shows hosts this folder there; $0 in it is the host."""
        script = self.ssh.read_text()
        assert script.count(_NAMED) == 1
        self.ssh.write_text(script.replace(_NAMED, f"&& mount --bind {folder} {place} {_NAMED}"))

    def etc(self, host: str, name: str) -> Path:
        return self.root / host / "etc" / "gambeson" / name

    def home(self, host: str, name: str) -> Path:
        return self.root / host / "home" / ".config" / "gambeson" / name

    def shell(self, host: str, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.ssh), host, script],
            env=clean_environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def words(self, words: Sequence[str]) -> str:
        return " ".join([f"GAMBESON_SSH={self.ssh}", str(self.gambeson), *words])

    def does(self, host: str, *words: str, stdin: str = "") -> str:
        done = self.shell(host, self.words(words), stdin)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, host: str, *words: str, stdin: str = "") -> str:
        done = self.shell(host, self.words(words), stdin)
        assert done.returncode == status, done
        assert done.stderr.startswith("gambeson: "), done
        return done.stderr

    @contextlib.contextmanager
    def stays(self, host: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A command that goes on, and the first line that it says."""
        command = [str(self.ssh), host, "exec env " + self.words(words)]
        with subprocess.Popen(
            command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                yield process, process.stdout.readline().strip()
            finally:
                process.terminate()
                process.wait(10)
