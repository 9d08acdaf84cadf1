"""GlusterFS between two hosts: a brick at each, and a mount of the volume at each, as a cluster's nodes have it.

The bricks are folders of this machine, so a test can do to them what a storage server could do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import Hosts

PORT = 49152
BRICK = """
volume posix
  type storage/posix
  option directory {folder}
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume brick
  type performance/io-threads
  subvolumes locks
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.listen-port {port}
  option auth.addr.brick.allow 10.77.0.*
  subvolumes brick
end-volume
"""
REMOTE = """
volume {name}
  type protocol/client
  option transport-type tcp
  option remote-host {address}
  option remote-port {port}
  option remote-subvolume brick
end-volume
"""
VOLUME = """
volume all
  type cluster/distribute
  subvolumes {names}
end-volume
"""
NO_LOCKS = """
volume lockless
  type debug/error-gen
  option enable lk
  option failure 100
  option error-no ENOSYS
  subvolumes all
end-volume
"""


def is_installed() -> bool:
    return shutil.which("glusterfsd") is not None and os.access("/dev/fuse", os.W_OK)


@dataclass(frozen=True)
class Volume:
    """A volume that is up."""

    folder: Path
    hosts: Hosts

    def mount(self, host: str) -> Path:
        """The volume as a host sees it."""
        return self.mounts / host

    @property
    def mounts(self) -> Path:
        """A folder with a mount named after each host."""
        return self.folder / "mounts"

    def stored(self, name: str) -> Path:
        """A file as the storage server that has it keeps it."""
        found = [path for path in self.folder.glob(f"brick-*/**/{name}") if path.stat().st_size]
        assert len(found) == 1, found
        return found[0]


@contextlib.contextmanager
def volume(folder: Path, hosts: Hosts, *, has_locks: bool = True) -> Iterator[Volume]:
    made = Volume(folder, hosts)
    with contextlib.ExitStack() as stack:
        for host in hosts.names:
            brick = folder / f"brick-{host}"
            brick.mkdir()
            described = BRICK.format(folder=brick, port=PORT)
            _start(stack, made, host, "glusterfsd", described)
        remotes = [REMOTE.format(name=host, address=hosts.address(host), port=PORT) for host in hosts.names]
        described = "".join(remotes) + VOLUME.format(names=" ".join(hosts.names))
        described += "" if has_locks else NO_LOCKS
        for host in hosts.names:
            mount = made.mount(host)
            mount.mkdir(parents=True)
            stack.callback(subprocess.run, ["umount", "-l", str(mount)], check=False, capture_output=True)
            _start(stack, made, host, "glusterfs", described, str(mount))
        _wait_for_mounts(made)
        yield made


def _start(stack: contextlib.ExitStack, made: Volume, host: str, daemon: str, described: str, *words: str) -> None:
    """A daemon in a host's network, and in this machine's view of mounts."""
    file = made.folder / f"{daemon}-{host}.vol"
    file.write_text(described)
    enter = ["nsenter", f"--net=/run/netns/{made.hosts.namespace(host)}"]
    process = subprocess.Popen([*enter, daemon, "-N", "-f", str(file), "-l", str(file.with_suffix(".log")), *words])
    stack.callback(process.wait)
    stack.callback(process.terminate)


def _wait_for_mounts(made: Volume) -> None:
    """Until each host reaches all bricks: each of them has every folder."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            for host in made.hosts.names:
                probe = made.mount(host) / "probe"
                probe.mkdir()
                probe.rmdir()
            if all(made.mount(host).is_mount() for host in made.hosts.names):
                return
        time.sleep(0.1)
    raise AssertionError("\n".join(path.read_text()[-2000:] for path in made.folder.glob("*.log")))
