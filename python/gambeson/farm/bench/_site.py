"""Where workers are while they are measured: each on a host of its own, a network namespace, or all on this host.

The hosts have no names anywhere: their namespaces are there as long as a process in each, which ends when the pipe to
this one does. So nothing is left behind, however this ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from gambeson.farm._recruit import Recruiter

CLONE_NEWNET = 0x40000000
NETWORK = "10.78.0"


class Site:
    """Places for workers, one each."""

    network = "127.0.0.0/8"
    """Where they and this process are: plain is what trusts it."""

    def __init__(self, why: str = "") -> None:
        self.told = "workers are processes of this host, over TCP on its loopback interface" + why

    def recruiter(self, at: int) -> Recruiter:
        """What starts one worker, in the place with this number, which is also in its name: `w3-1`."""
        return Recruiter(slots=1, local=True, label=f"w{at + 1}")


class Namespaces(Site):
    """Hosts on a bridge, 10.78.0.2 and so on; this process is at 10.78.0.1."""

    network = f"{NETWORK}.0/24"

    def __init__(self, count: int) -> None:
        self.told = "each worker has a host of its own: network namespaces, joined by a bridge of this machine"
        self._holders: list[subprocess.Popen[bytes]] = []
        self._count = count

    def up(self) -> None:
        """Makes them.

        Raises `OSError` or `subprocess.CalledProcessError` where that is not permitted, or not possible.
        """
        if missing := [command for command in ("ip", "unshare", "nsenter") if shutil.which(command) is None]:
            raise OSError(f"there is no {missing[0]}")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "br0", "type", "bridge")
        _ip("addr", "add", f"{NETWORK}.1/24", "dev", "br0")
        _ip("link", "set", "br0", "up")
        for at in range(self._count):
            script = f"hostname worker{at + 1}; echo; exec cat"
            command = ["unshare", "--net", "--uts", "--", "sh", "-c", script]
            holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._holders.append(holder)
            assert holder.stdout is not None
            if not holder.stdout.readline():
                raise OSError("a host's namespaces cannot be made")
            _ip("link", "add", f"to-{at}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            _ip("link", "set", f"to-{at}", "master", "br0", "up")
            inside = self._enter(at)
            _ip("addr", "add", f"{NETWORK}.{at + 2}/24", "dev", "eth0", within=inside)
            _ip("link", "set", "lo", "up", within=inside)
            _ip("link", "set", "eth0", "up", within=inside)

    def down(self) -> None:
        """Ends them."""
        for holder in self._holders:
            holder.communicate()

    def _enter(self, at: int) -> list[str]:
        return ["nsenter", "--target", str(self._holders[at].pid), "--net", "--uts", "--"]

    def recruiter(self, at: int) -> Recruiter:
        return Recruiter(self._enter(at), [f"{NETWORK}.{at + 2}"], slots=1, label=f"w{at + 1}")


def _ip(*words: str, within: Sequence[str] = ()) -> None:
    subprocess.run([*within, "ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def site(count: int, local: bool) -> Iterator[Site]:
    """So many hosts; on this one, if that is wanted, or others cannot be made.

    This thread, and whatever it starts, is in a network of its own from then on.
    """
    made, place = Namespaces(count), Site()
    try:
        if not local:
            try:
                made.up()
                place = made
            except (OSError, subprocess.CalledProcessError) as error:
                place = Site(f", as namespaces cannot be made ({error}): they take root, iproute2 and util-linux")
        yield place
    finally:
        made.down()
