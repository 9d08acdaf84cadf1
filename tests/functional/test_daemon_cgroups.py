"""A daemon with a cgroup of its own: each order has one below it, and all that is in that ends, whatever it does."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.daemons import cmdline, exec_on, gone, running, serving
from harness.hosts import hosts
from harness.site import Site

pytestmark = [pytest.mark.namespaces]

# In the daemon's own view of the machine cgroups are where they usually are, and it is in this one of them.
WRAPPER = """#!/bin/sh
mount -t cgroup2 none /sys/fs/cgroup && echo $$ > /sys/fs/cgroup/{name}/cgroup.procs && exec {gambeson} "$@"
"""

# A process that is another one each millisecond: by the time that somebody has read its number it is gone.
HOPPING = """
import os, time
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.001)
"""


@pytest.fixture(scope="module")
def site(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("cgroups")
    with hosts(folder, 2) as made:
        site = Site(made, gambeson, folder / "site")
        site.does("h1", "init")
        site.does("h1", "enroll", "h2")
        yield site


@pytest.fixture
def cgroup(site: Site, tmp_path: Path) -> Iterator[Path]:
    """One that is delegated, as systemd marks it."""
    mounted = tmp_path / "cgroups"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "cgroup2", "none", mounted], capture_output=True, text=True, timeout=20, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no cgroups of version 2 can be mounted here ({done.stderr.strip()})")
    made = mounted / f"{site.hosts.prefix}-{tmp_path.name}"
    made.mkdir()
    os.setxattr(made, "user.delegate", b"1")
    try:
        yield made
        assert orders(made) == []
    finally:
        # The daemon's nursery is the last that goes; of a test that has failed all goes.
        _remove(made, within=5)
        subprocess.run(["umount", "--lazy", mounted], check=True)


def _remove(cgroup: Path, within: float) -> None:
    deadline = time.monotonic() + within
    while (cgroup / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    (cgroup / "cgroup.kill").write_text("1")
    time.sleep(0.1)
    for below in (path for path in cgroup.iterdir() if path.is_dir()):
        below.rmdir()
    cgroup.rmdir()


@pytest.fixture
def within(site: Site, cgroup: Path, tmp_path: Path) -> Site:
    """Its daemons are in that cgroup."""
    wrapper = tmp_path / "gambeson"
    wrapper.write_text(WRAPPER.format(name=cgroup.name, gambeson=site.gambeson))
    wrapper.chmod(0o755)
    within = copy.copy(site)
    within.gambeson = wrapper
    return within


def orders(cgroup: Path, within: float = 10) -> list[Path]:
    """The cgroups of orders that are there yet after a while."""
    deadline = time.monotonic() + within
    while (left := [path for path in cgroup.iterdir() if path.is_dir()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_an_order_has_a_cgroup(site: Site, within: Site, cgroup: Path) -> None:
    with serving(within, "h2"):
        places = set()
        for account in ("root", "nobody"):
            done = exec_on(site, "h2", "cat", "/proc/self/cgroup", options=("--account", account))
            places.add(next(line for line in done.stdout.splitlines() if line.startswith("0::")))
        assert len(places) == 2, places
        assert all(place.startswith(f"0::/{cgroup.name}/gambeson-") for place in places), places
        assert orders(cgroup) == []
        with site.stays("h1", "exec", "h2", "--", "sh -c 'echo on; exec sleep 7801'") as (requester, _):
            assert len(orders(cgroup, within=0)) == 1
            requester.terminate()
        assert gone("sleep 7801")


def test_what_starts_anew_all_the_time_is_ended(site: Site, within: Site, tmp_path: Path) -> None:
    (tmp_path / "7802.py").write_text(HOPPING)
    with serving(within, "h2"):
        done = exec_on(site, "h2", "sh", "-c", f"setsid {sys.executable} {tmp_path}/7802.py & sleep 0.5; echo done")
        assert done.stdout == "done\n", done
        assert gone("7802.py", within=5)


def test_what_has_become_somebody_else_is_ended(site: Site, within: Site) -> None:
    with tempfile.TemporaryDirectory() as name, serving(within, "h2"):
        Path(name).chmod(0o755)
        # As sudo does, which is for root to end.
        shutil.copy("/usr/bin/setpriv", f"{name}/become")
        Path(name, "become").chmod(0o4755)
        script = f"{name}/become --reuid 0 --clear-groups sleep 7803 & sleep 0.5; echo done"
        done = exec_on(site, "h2", "sh", "-c", script, options=("--account", "nobody"))
        assert done.stdout == "done\n", done
        assert gone("sleep 7803", within=5)


def test_what_nobody_was_left_to_end_is_ended_by_the_next_daemon(site: Site, within: Site, cgroup: Path) -> None:
    command = 'setsid sh -c "sleep 7804; :" & echo on; sleep 7804'
    with (
        serving(within, "h2") as daemon,
        site.stays("h1", "exec", "h2", "--", f"sh -c '{command}'") as (requester, said),
    ):
        assert said == "on"
        # The nursery, the keepers, and the daemon, as when memory has run out.
        mine = [int(pid) for procs in cgroup.rglob("cgroup.procs") for pid in procs.read_text().split()]
        mine = [pid for pid in mine if " daemon --log " in cmdline(Path("/proc") / str(pid))]
        assert len(mine) == 3, mine
        for pid in sorted(mine, key=lambda pid: pid == daemon.pid):
            os.kill(pid, signal.SIGKILL)
        daemon.wait(20)
        requester.kill()
    time.sleep(1)
    assert any("sleep 7804" in line for line in running()), "nobody is there who would end it"
    with serving(within, "h2"):
        assert gone("sleep 7804", within=3)
        assert exec_on(site, "h2", "echo", "again").stdout == "again\n"
