"""Several hosts on one machine: network namespaces joined by a bridge, each with its own hostname and hosts file.

All names carry the process's id and a number, so that runs beside each other don't meet; everything is removed at the
end, and what a killed run left behind is removed by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.jobs import Job, run_marked

_counter = itertools.count()
_PREFIX = "gbt"

# What a launcher calls in place of ssh: a clean environment on the other host, as a login would give, but for the mark
# by which the tests find survivors.
_AGENT = """#!/bin/bash
while [[ ${{1:-}} == -* ]]; do case "$1" in -l | -o | -p | -i | -F) shift 2 ;; *) shift ;; esac; done
host=${{1#*@}}; shift
case "$host" in 10.77.0.*) host=h${{host##*.}} ;; esac
exec ip netns exec "{prefix}-$host" unshare -u -- env -i HOME="$HOME" PATH=/usr/local/bin:/usr/bin:/bin \\
  SHELL=/bin/bash TEST_JOB_MARK="${{TEST_JOB_MARK:-}}" \
  bash -c 'hostname "$0"; exec bash -c "$1"' "$host" "$*"
"""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Hosts h1, h2, ... at 10.77.0.1, 10.77.0.2, ... on a network of their own."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.prefix = f"{_PREFIX}{os.getpid()}n{next(_counter)}"
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self.switch = f"{self.prefix}-sw"
        self.agent = folder / f"{self.prefix}-ssh"
        """Stands in for ssh: `agent HOST COMMAND...`."""

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def address(self, host: str) -> str:
        return f"10.77.0.{host.removeprefix('h')}"

    def up(self) -> None:
        _sweep()
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "br0", "up")
        table = "127.0.0.1 localhost\n" + "".join(f"{self.address(host)} {host}\n" for host in self.names)
        for host in self.names:
            namespace = self.namespace(host)
            _ip("netns", "add", namespace)
            # Both ends are born inside namespaces: nothing appears on the machine itself.
            _ip(
                "-n",
                self.switch,
                "link",
                "add",
                f"to-{host}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                namespace,
            )
            _ip("-n", self.switch, "link", "set", f"to-{host}", "master", "br0", "up")
            _ip("-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            folder = Path("/etc/netns") / namespace
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(table)
        self.agent.write_text(_AGENT.format(prefix=self.prefix))
        self.agent.chmod(0o755)

    def down(self) -> None:
        for namespace in [*(self.namespace(host) for host in self.names), self.switch]:
            _remove(namespace)
        self.agent.unlink(missing_ok=True)

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """`command` as if logged in on `host`: its network, its hostname."""
        script = 'hostname "$0"; exec "$@"'
        return [
            "ip",
            "netns",
            "exec",
            self.namespace(host),
            "unshare",
            "-u",
            "--",
            "bash",
            "-c",
            script,
            host,
            *command,
        ]

    def run(self, host: str, command: Sequence[str], *, env: Mapping[str, str], timeout: float = 60) -> Job:
        return run_marked(self.command(host, command), env=env, timeout=timeout)

    def launcher(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Options and environment with which the MPI called `name` starts its ranks through the agent, one per host."""
        hosts = ",".join(self.names)
        if name == "mpich":
            return ["-launcher", "rsh", "-launcher-exec", str(self.agent), "-hosts", hosts, "-ppn", "1"], {
                "FI_TCP_IFACE": "eth0"
            }
        if name == "intel":
            return ["-bootstrap", "rsh", "-bootstrap-exec", str(self.agent), "-hosts", hosts, "-ppn", "1"], {
                "FI_TCP_IFACE": "eth0"
            }
        slots = ",".join(f"{host}:1" for host in self.names)
        if name == "openmpi":
            prrte = ["--prtemca", "plm_ssh_agent", str(self.agent), "--prtemca", "prte_if_include", "eth0"]
            return [*prrte, "-H", slots, "-x", "FI_PROVIDER"], {}
        orte = ["--mca", "plm_rsh_agent", str(self.agent), "--mca", "oob_tcp_if_include", "eth0"]
        return [*orte, "-H", slots, "-x", "FI_PROVIDER"], {}


def _remove(namespace: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "del", namespace)
    shutil.rmtree(Path("/etc/netns") / namespace, ignore_errors=True)


def _sweep() -> None:
    """Removes the namespaces of test runs that no longer exist."""
    folders = [Path("/run/netns"), Path("/etc/netns")]
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    for name in names:
        match = re.match(rf"{_PREFIX}(\d+)n\d+-", name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _remove(name)


@contextlib.contextmanager
def hosts(folder: Path, count: int = 2) -> Iterator[Hosts]:
    made = Hosts(folder, count)
    try:
        made.up()
        yield made
    finally:
        made.down()
