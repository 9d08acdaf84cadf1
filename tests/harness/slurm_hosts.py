"""A real Slurm over several hosts: network namespaces, each with its own hostname, /dev/shm, /run and munged.

h1 has the controller and is where users log in; the nodes are h2 and h3.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.hosts import Hosts, hosts
from harness.jobs import Job, run_marked
from harness.slurm import Slurm

SOCKET = "/run/munge/munge.socket.2"
# What a host has of its own, kept as long as a process stays in it.
_HOST = """
hostname "$0" && mount --make-rprivate / && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs tmpfs /run &&
mkdir /run/munge && mount --bind "$1" /etc/hosts && echo ready && exec sleep infinity
"""


class SlurmHosts(Slurm):
    """A cluster that runs; what it has of plug-ins stands in plugstack.conf in its folder."""

    def __init__(self, network: Hosts, folder: Path) -> None:
        super().__init__(folder)
        self.network = network
        self.login, *self.nodes = network.names
        self.keepers: dict[str, subprocess.Popen[str]] = {}

    def up(self) -> None:
        for host in self.network.names:
            self.keepers[host] = self._host(host)
        nodes = [f"NodeName={node} NodeAddr={self.network.address(node)} CPUs=8 State=UNKNOWN" for node in self.nodes]
        controller = f"{self.login}({self.network.address(self.login)})"
        # /tmp is one for all hosts here, and PMIx has folders in it.
        self._configure(controller, 6817, SOCKET, ["TmpFS=/run", *nodes])
        for host in self.network.names:
            self._munged(f"munged-{host}", SOCKET, self.on(host))
        for host in self.network.names:
            self._wait("munged", lambda host=host: self.inside(host, SOCKET).exists())
        self._daemon("slurmctld", "-D", "-c", prefix=self.on(self.login))
        for node in self.nodes:
            self._daemon("slurmd", "-D", "-N", node, prefix=self.on(node))
        self._wait("its nodes", self._idle)

    def down(self) -> None:
        super().down()
        for keeper in self.keepers.values():
            keeper.kill()
            keeper.communicate()

    def _host(self, host: str) -> subprocess.Popen[str]:
        enter = ["nsenter", f"--net=/run/netns/{self.network.namespace(host)}", "unshare", "--mount", "--uts", "--"]
        table = f"/etc/netns/{self.network.namespace(host)}/hosts"
        keeper = subprocess.Popen([*enter, "bash", "-c", _HOST, host, table], stdout=subprocess.PIPE, text=True)
        assert keeper.stdout is not None and keeper.stdout.readline() == "ready\n"
        return keeper

    def on(self, host: str) -> list[str]:
        """What puts a command onto a host."""
        return ["nsenter", "-t", str(self.keepers[host].pid), "--net", "--mount", "--uts", "--"]

    def inside(self, host: str, path: str) -> Path:
        """A file of a host as it is seen from here."""
        return Path(f"/proc/{self.keepers[host].pid}/root{path}")

    def has(self, host: str, process: Path) -> bool:
        """Whether a process is on a host."""
        with contextlib.suppress(OSError):
            return (process / "ns/net").readlink() == Path(f"/proc/{self.keepers[host].pid}/ns/net").readlink()
        return False

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        cwd: Path | None = None,
        host: str | None = None,
    ) -> Job:
        return run_marked(
            [*self.on(host or self.login), *(str(word) for word in command)],
            env={**self.env, **(env or {})},
            timeout=timeout,
            cwd=cwd or self.folder,
        )

    def plugin(self, line: str) -> None:
        """What srun and slurmstepd load from now on."""
        (self.folder / "plugstack.conf").write_text(line)

    def _idle(self) -> bool:
        asked = subprocess.run(
            [*self.on(self.login), "sinfo", "-h", "-N", "-o", "%T"], env=self.env, capture_output=True, text=True
        )
        return asked.stdout.split() == ["idle"] * len(self.nodes)


@contextlib.contextmanager
def slurm_hosts(folder: Path) -> Iterator[SlurmHosts]:
    with hosts(folder, 3) as network:
        cluster = SlurmHosts(network, folder)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()
