"""What goes wrong with hosts and their daemons: clocks, certificates, restarts, cables.

Each is said in a sentence, and nothing is left: no process on any host, and no secret on any disk.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.daemons import RULES, exec_on, gone, running, serving
from harness.hosts import hosts
from harness.mpis import Mpi
from harness.programs import ASK, Programs
from harness.site import Site

pytestmark = [pytest.mark.namespaces]

DAY = 86_400
# Two ranks that say the job's secret, and wait until the test is over.
WAIT = f"""
import os, sys, time
from mpi4py import MPI
sys.path.append({str(ASK.parent)!r})
import ask
MPI.COMM_WORLD.Barrier()
os.write(1, ask.given("credential")[26:58].hex().encode() + b"\\n")
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def site(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three hosts, each with a /dev/shm of its own, the first two served by daemons; root on h1 and ada on h2."""
    folder = tmp_path_factory.mktemp("faults")
    with hosts(folder, 3) as made:
        memory = Path("/dev/shm") / made.prefix
        try:
            site = Site(made, gambeson, folder / "site")
            site.separate("/dev/shm", memory)
            site.does("h1", "init")
            for host in ("h2", "h3"):
                site.does("h1", "enroll", host)
            site.does("h1", "enroll", "--user", "ada", "h2")
            (site.root / "wait.py").write_text(WAIT)
            with serving(site, "h1"), serving(site, "h2"):
                yield site
        finally:
            shutil.rmtree(memory, ignore_errors=True)


class Clock:
    """A host's clock, which can be set while its programs run."""

    def __init__(self, site: Site, library: Path, folder: Path) -> None:
        self.shift, wrapper = folder / "shift", folder / "gambeson"
        self.off(0)
        wrapper.write_text(f'#!/bin/sh\nLD_PRELOAD={library} CLOCK={self.shift} exec {site.gambeson} "$@"\n')
        wrapper.chmod(0o755)
        self.site = copy.copy(site)
        """The site's hosts by this clock."""
        self.site.gambeson = wrapper

    def off(self, seconds: int) -> None:
        """Sets it, so many seconds before the real one."""
        # Not anew: it is mapped where it is read.
        descriptor = os.open(self.shift, os.O_WRONLY | os.O_CREAT)
        os.pwrite(descriptor, seconds.to_bytes(8, "little", signed=True), 0)
        os.close(descriptor)


@pytest.fixture
def clock(site: Site, programs: Programs, tmp_path: Path) -> Clock:
    return Clock(site, programs.compile("cc", "clock.c", "-shared", "-fPIC"), tmp_path)


def cable(site: Site, host: str, state: str) -> None:
    """Unplugs a host, or plugs it in again: nothing is said to anybody."""
    subprocess.run(["ip", "-n", site.hosts.namespace(host), "link", "set", "eth0", state], check=True)


# --- clocks


def test_a_daemon_whose_clock_is_wrong(site: Site, clock: Clock) -> None:
    with serving(clock.site, "h3") as daemon:
        assert exec_on(site, "h3", "true").returncode == 0
        clock.off(120)
        assert ", its clock 120 s off" in site.does("h1", "hosts", "h3")
        for wrong in (10 * DAY, -3600):
            clock.off(wrong)
            done = exec_on(site, "h3", "true")
            assert done.returncode == 69, done
            said = "this end's certificate has expired, or is not valid yet, by the other end's clock, and it is 20"
            assert said in done.stderr, done
            assert "renew it, or compare the clocks" in done.stderr
        # Nobody has to start it again.
        clock.off(0)
        assert exec_on(site, "h3", "true").returncode == 0
        daemon.terminate()
        said = daemon.communicate(timeout=20)[1]
    assert "the other end's certificate expired 3 days ago by this host's clock: it was valid until 20" in said, said
    assert "the other end's certificate is not valid yet: it will be in " in said and ", and it is 20" in said, said
    # One that has been expired when it starts has nothing that it could show.
    clock.off(10 * DAY)
    said = clock.site.refuses(70, "h3", "daemon")
    assert "host.pem expired " in said and "s ago by this host's clock, which shows 20" in said, said
    assert "enroll again, with --replace, or set the clock" in said


def test_a_requester_whose_clock_is_wrong(site: Site, clock: Clock) -> None:
    rules = RULES + RULES.replace("user:root", "user:ada")
    with serving(site, "h3", rules):
        clock.off(0)
        assert clock.site.does("h2", "exec", "h3", "--", "hostname") == "h3\n"
        clock.off(10 * DAY)
        said = clock.site.refuses(70, "h2", "exec", "h3", "--", "hostname")
        assert "identity.pem expired " in said and "by this host's clock, which shows 20" in said, said
        clock.off(-3600)
        said = clock.site.refuses(69, "h2", "exec", "h3", "--", "hostname")
        assert "the other end's certificate is not valid yet: it will be in " in said and ", and it is 20" in said, said
        # An order that is passed on begins while it is fresh: what is signed says when.
        clock.off(-250)
        places = ",".join(["h3"] * 40)
        done = clock.site.shell("h2", clock.site.words(["exec", places, "--", "hostname"]))
        assert done.returncode == 69 and done.stdout.count("h3") == 14, done
        assert done.stderr.count("has failed: ") == 26, done
        assert "the order was to begin until 20" in done.stderr and "Z here; set the clocks, or order again" in (
            done.stderr
        ), done


def test_certificates_expire_and_processes_go_on(gambeson: Path, tmp_path: Path) -> None:
    """Nine seconds: what runs goes on, daemons renew theirs by themselves, and who has not is told what to do."""
    with hosts(tmp_path, 2) as made:
        site = Site(made, gambeson, tmp_path / "site")
        site.does("h1", "init", "--days", "0.00011")
        site.does("h1", "enroll", "h2")
        with serving(site, "h1"), serving(site, "h2"):
            stale = tmp_path / "stale"
            shutil.copytree(site.home("h1", ""), stale)
            # Its authority is nowhere, so that nobody renews it.
            (stale / "site.toml").write_text((stale / "site.toml").read_text().replace("h1:7200", "h1:9"))
            command = "for i in $(seq 14); do echo $i; sleep 1; done; exit 5"
            with site.stays("h2", "exec", "--folder", str(stale), "h1", "--", f"sh -c '{command}'") as (runs, said):
                assert said == "1"
                output, errors = runs.communicate(timeout=30)
                assert runs.returncode == 5 and output.split()[-1] == "14", (output, errors)
            refused = site.refuses(70, "h2", "exec", "--folder", str(stale), "h1", "--", "true")
            assert "identity.pem expired " in refused and "enroll again, with --replace" in refused, refused
            site.does("h1", "exec", "h2", "--", "true")


# --- restarts


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_is_started_again(site: Site, how: signal.Signals) -> None:
    mark = f"75{how:02}"
    command = f"(setsid sleep {mark} &); echo begun; exec sleep {mark}"
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(serving(site, "h3"))
        requester, said = stack.enter_context(site.stays("h1", "exec", "h3", "--", f"sh -c '{command}'"))
        assert said == "begun"
        daemon.send_signal(how)
        daemon.wait(20)
        # At once, while what the other one left is being ended.
        stack.enter_context(serving(site, "h3"))
        assert exec_on(site, "h3", "echo", "again").stdout == "again\n"
        assert gone(f"sleep {mark}", within=5)
        _, errors = requester.communicate(timeout=30)
        assert requester.returncode == 69, errors
        assert "process 0 on h3 has failed: " in errors and SENTENCE[how] in errors, errors
    site.does("h3", "audit-log", "verify", str(site.root / "h3" / "audit.log"))


SENTENCE = {
    signal.SIGTERM: "the connection to its daemon is lost (h3 on h3 has closed), and what ran there ends with that",
    signal.SIGKILL: "the connection to its daemon is lost (h3 on h3 has this session no more",
}


@contextlib.contextmanager
def job(site: Site, mpi: Mpi, mark: str) -> Iterator[tuple[subprocess.Popen[str], bytes]]:
    """A job with a rank on h1 and one on h3, over their daemons, which ends by itself never; and its secret."""
    words = ["run", "-q", "--launcher", "daemon", "--", *mpi.mpiexec, "-hosts", "h1,h3", "-ppn", "1", "-n", "2"]
    with site.stays("h1", *words, mpi.python, str(site.root / "wait.py"), mark) as (process, said):
        assert len(said) == 64 and process.stdout is not None and process.stdout.readline() == f"{said}\n"
        yield process, bytes.fromhex(said)


def having(site: Site, secret: bytes) -> list[Path]:
    """Files with a secret in them: of the hosts, and of what they share."""
    places = [site.root, Path("/dev/shm"), Path("/run"), Path("/var/tmp"), Path("/tmp")]
    found = []
    for folder, _, names in (entry for place in places for entry in os.walk(place)):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                status = path.lstat()
                is_new = stat.S_ISREG(status.st_mode) and status.st_mtime > BEGUN and status.st_size < 1 << 20
                if is_new and secret in path.read_bytes():
                    found.append(path)
    return found


def kept(site: Site) -> list[Path]:
    """Directories of jobs, on any host."""
    return list(Path("/dev/shm", site.hosts.prefix).glob("*/gambeson-*"))


BEGUN = time.time()


@pytest.mark.mpis("mpich")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_is_started_again_below_a_job(site: Site, mpi: Mpi, how: signal.Signals) -> None:
    mark = f"76{how:02}"
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(serving(site, "h3"))
        launcher, known = stack.enter_context(job(site, mpi, mark))
        daemon.send_signal(how)
        daemon.wait(20)
        stack.enter_context(serving(site, "h3"))
        assert exec_on(site, "h3", "echo", "again").stdout == "again\n"
        _, errors = launcher.communicate(timeout=40)
        assert launcher.returncode not in (0, None) and f"gambeson: h3: {SENTENCE[how]}" in errors, errors
        assert gone(mark, within=5)
        assert not having(site, known) and not kept(site)


# --- cables


@pytest.mark.mpis("mpich")
def test_a_host_vanishes(site: Site, mpi: Mpi) -> None:
    """A cable is cut: nobody is told by a reset. Both sides of it notice, and end what nobody can want any more."""
    places = ",".join(["h1", "h2", "h3"] * 12)
    with contextlib.ExitStack() as stack:
        stack.enter_context(serving(site, "h3"))

        def begins(hosts: str, script: str) -> subprocess.Popen[str]:
            process, said = stack.enter_context(site.stays("h1", "exec", hosts, "--", f"sh -c '{script}'"))
            assert said == "on", said
            return process

        silent = begins("h3", "echo on; exec sleep 7701")
        talking = begins("h3", "while :; do echo on; sleep 0.1; done; : 7702")
        tree = begins(places, "echo on; exec sleep 7703")
        assert tree.stdout is not None and all(tree.stdout.readline() == "on\n" for _ in range(35))
        launcher, known = stack.enter_context(job(site, mpi, "7704"))
        cable(site, "h3", "down")
        cut = time.monotonic()
        try:
            for process, what in ((silent, ALONE), (talking, ALONE), (launcher, "h3")):
                _, errors = process.communicate(timeout=40)
                assert process.returncode not in (0, None) and f"gambeson: {what}: {VANISHED}" in errors, errors
            # There nobody can be told; it ends what was ordered at it by itself.
            marks = ("7701", "7702", "7704")
            assert all(gone(mark, within=cut + 40 - time.monotonic()) for mark in marks)
            while len(left := runs("sleep 7703 ")) > 24 and time.monotonic() < cut + 40:
                time.sleep(0.1)
            assert len(left) == 24, "all but those of h3"
            print(f"it took {time.monotonic() - cut:.1f} s")
            assert not having(site, known) and not kept(site)
        finally:
            cable(site, "h3", "up")
        tree.terminate()
        _, errors = tree.communicate(timeout=20)
        assert errors.count(f" on h3 has failed: {VANISHED}") == 12, errors
        assert gone("sleep 7703", within=5)
        assert exec_on(site, "h3", "hostname").stdout == "h3\n"


@pytest.mark.long
def test_a_requester_that_is_stopped_keeps_its_processes(site: Site) -> None:
    """For longer than a host may be away: its host answers for it."""
    with (
        serving(site, "h3"),
        site.stays("h1", "exec", "h3", "--", "sh -c 'echo on; sleep 32; echo off'") as (requester, _),
    ):
        requester.send_signal(signal.SIGSTOP)
        time.sleep(30)
        requester.send_signal(signal.SIGCONT)
        output, errors = requester.communicate(timeout=30)
        assert (requester.returncode, output) == (0, "off\n"), errors


ALONE = "process 0 on h3 has failed"
VANISHED = "the connection to its daemon is lost ("


def runs(start: str) -> list[str]:
    return [line for line in running() if line.startswith(start)]
