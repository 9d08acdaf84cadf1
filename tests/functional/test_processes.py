"""start_process and init_process: processes on two hosts, which their daemons start, with a security context each."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from functional.test_c_links import STRICT, Installed, tree
from harness.hosts import Hosts
from harness.mpis import ROOT
from harness.python import Package
from harness.site import Site

__all__ = ["tree"]
pytestmark = [pytest.mark.namespaces]

MEMBER = ROOT / "tests" / "programs" / "launch" / "member.py"
CANARY = "the-canary-of-the-context"
RULES = '[[allow]]\nidentity = "user:root"\naccounts = ["root", "nobody"]\n'

HEAD = f"""
import json, os, sys
from gambeson import launch, link
MEMBER = [sys.executable, {str(MEMBER)!r}]
ENVIRONMENT = {{"PYTHONPATH": os.environ["PYTHONPATH"]}}

def refused(future):
    try:
        return future.result(60)
    except link.Error as error:
        return f"{{type(error).__name__}}: {{error}}"
"""


class Cluster:
    """h1 and h2 with their daemons, and Python on each of them."""

    def __init__(self, site: Site, package: Package, folder: Path) -> None:
        self.site, self.package, self.folder = site, package, folder

    def command(self, program: str, before: str = "") -> list[str]:
        path = self.folder / "creator.py"
        path.write_text(HEAD + program)
        words = f"PYTHONPATH={shlex.quote(str(self.package.folder))} exec {before} {self.package.python} {path}"
        return [str(self.site.ssh), "h1", words]

    def run(self, program: str, before: str = "") -> Any:
        """What a program on h1 prints, as JSON."""
        done = subprocess.run(self.command(program, before), capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, done
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def capture(self, into: Path) -> Iterator[None]:
        """Writes all that goes between the hosts to a file."""
        switch = self.site.hosts.switch
        command = [
            "ip",
            "netns",
            "exec",
            switch,
            "tcpdump",
            "-i",
            "to-h1",
            "--immediate-mode",
            "-U",
            "-s",
            "0",
            "-B",
            "65536",
            "-w",
            str(into),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tcpdump:
            assert tcpdump.stderr is not None
            assert "listening on" in tcpdump.stderr.readline()
            try:
                yield
            finally:
                tcpdump.terminate()


@pytest.fixture
def cluster(two_hosts: Hosts, gambeson: Path, package: Package, tmp_path: Path) -> Iterator[Cluster]:
    site = Site(two_hosts, gambeson, tmp_path / "site")
    site.does("h1", "init")
    site.does("h1", "enroll", "h2")
    with contextlib.ExitStack() as daemons:
        for host in ("h1", "h2"):
            site.etc(host, "daemon.toml").write_text(RULES)
            log = str(tmp_path / f"{host}.log")
            _, line = daemons.enter_context(site.stays(host, "daemon", "--log", log))
            assert "listening" in line
        yield Cluster(site, package, tmp_path)


def test_a_vector_of_eight_over_two_hosts(cluster: Cluster, tmp_path: Path) -> None:
    program = f"""
arrived = []
with launch.Creator() as creator:
    mine = creator.domain.endpoint({{0: lambda request: arrived.append(int(bytes(request.payload))) or b""}})
    with creator.start_process(
        ["h1", "h2"], MEMBER, count=4, environment=ENVIRONMENT, context=b"{CANARY}", creator=mine
    ) as processes:
        capabilities = [process.startpoint.result(60) for process in processes]
        # The hosts share their memory, which real ones do not.
        tcp = link.Transport.TCP
        startpoints = [creator.domain.startpoint(capability, transport=tcp) for capability in capabilities]
        assert all(startpoint.carrier.transport is tcp for startpoint in startpoints)
        said = [startpoint.call(0, b"", timeout=20).decode() for startpoint in startpoints]
        # Each asks the one after it, by a copy that it alone can use.
        heard = []
        for number, startpoint in enumerate(startpoints):
            sibling = capabilities[(number + 1) % 8]
            copy = creator.domain.copy_for(sibling, capabilities[number].owner)
            heard.append(startpoint.call(1, bytes(copy), timeout=30).decode())
        proc = {{process.number: (open(f"/proc/{{process.pid}}/environ", "rb").read()
                 + open(f"/proc/{{process.pid}}/cmdline", "rb").read()).decode() for process in processes}}
        protections = [startpoint.protection.value for startpoint in startpoints]
        for number, startpoint in enumerate(startpoints):
            startpoint.post(2, bytes([number]))
        statuses = [process.status.result(20) for process in processes]
        hosts = [process.host for process in processes]
print(json.dumps([said, heard, statuses, hosts, sorted(arrived), proc, protections]))
"""
    with cluster.capture(tmp_path / "wire"):
        found = cluster.run(program)
    wire = (tmp_path / "wire").read_bytes()
    assert len(wire) > 20_000 and CANARY.encode() not in wire
    said, heard, statuses, hosts, arrived, proc, protections = found
    assert said == [f"{number} {CANARY}" for number in range(8)]
    assert heard == said[1:] + said[:1]
    assert statuses == arrived == list(range(8))
    assert hosts == ["h1"] * 4 + ["h2"] * 4
    assert set(protections) == {"privacy"}
    assert len(proc) == 8
    for text in proc.values():
        assert "GAMBESON_CONTEXT_FD=" in text and CANARY not in text


def test_the_context_is_taken_once(cluster: Cluster) -> None:
    again, status, outside = cluster.run("""
with launch.Creator() as creator:
    with creator.start_process("h2", MEMBER, environment=ENVIRONMENT) as processes:
        startpoint = creator.domain.startpoint(processes[0].startpoint.result(60))
        said = json.loads(startpoint.call(3, b"", timeout=60))
        startpoint.post(2, bytes([3]))
        status = processes[0].status.result(20)
    try:
        launch.init_process()
    except link.Refused as error:
        outside = str(error)
print(json.dumps([said, status, outside]))
""")
    assert again[0].startswith("Refused: the security context of this process was taken already")
    assert again[1].startswith("Refused: process 0 has said already that it is ready")
    assert "the security context of this process was taken already" in again[2]
    assert status == 3
    assert "it must be made by start_process" in outside


def test_processes_of_processes_belong_to_the_job(cluster: Cluster) -> None:
    said = cluster.run("""
with launch.Creator() as creator:
    with creator.start_process("h1", MEMBER, count=2, environment={**ENVIRONMENT, "HOME": os.environ["HOME"]},
                               context=b"child") as processes:
        first, second = [process.startpoint.result(60) for process in processes]
        said = creator.domain.startpoint(first).call(4, bytes(second), timeout=90).decode()
print(json.dumps(said))
""")
    assert said == "0 grandchild, 1 child"


def test_under_gambeson_run_they_are_of_its_job(cluster: Cluster) -> None:
    program = """
import asyncio

async def ask(creator, process):
    startpoint = creator.domain.startpoint(await asyncio.wrap_future(process.startpoint))
    said = await startpoint.request(0, b"", timeout=20)
    startpoint.post(2, bytes([5]))
    return said.decode(), await asyncio.wrap_future(process.status)

async def main():
    with launch.Creator() as creator:
        with creator.start_process(["h1", "h2"], MEMBER, environment=ENVIRONMENT, context=b"rank") as processes:
            return await asyncio.gather(*(ask(creator, process) for process in processes))

member = link.Domain.from_job()
member.close()
print(json.dumps(asyncio.run(main())))
"""
    assert cluster.run(program, f"{cluster.site.gambeson} run --") == [["0 rank", 5], ["1 rank", 5]]


def test_what_is_not_ready_says_why(cluster: Cluster) -> None:
    found = cluster.run("""
heard = []
with launch.Creator() as creator:
    start = creator.start_process
    wrote = lambda number, errors, text: heard.append((number, errors, text.decode()))
    with (
        start(["h1", "h2"], ["sh", "-c", "echo out; echo err >&2; exit 7"], output=wrote) as silent,
        start("h2", ["sh", "-c", "exit 0"], account="daemon") as forbidden,
        start("h2", ["/nowhere/program"]) as missing,
        start("h9=10.77.0.9:7200", ["true"]) as away,
        start("h1=10.77.0.2:7200", ["true"]) as another,
        start("h2", ["cat"], input=True, output=wrote) as cat,
        start("h2", ["sleep", "100"]) as sleeping,
    ):
        while sleeping[0].pid is None or cat[0].pid is None:
            pass
        cat[0].write(b"meow")
        cat[0].write(b"")
        sleeping[0].send_signal(15)
        refusals = [refused(one[0].startpoint) for one in (silent, forbidden, missing, away, another, cat, sleeping)]
        statuses = [refused(one.status) for one in [*silent, cat[0], sleeping[0]]]
print(json.dumps([refusals, statuses, sorted(heard)]))
""")
    (silent, forbidden, missing, away, another, cat, sleeping), statuses, heard = found
    assert silent == (
        "Lost: process 0 on h1 ended with status 7 before it was ready; its program has to call init_process"
    )
    assert "process 0 on h2 has failed: root may not use the account daemon here" in forbidden.replace("user:", "")
    assert "/nowhere/program cannot be started" in missing
    assert away.startswith("Lost: process 0 on h9 has failed: ")
    assert another.startswith("Lost: process 0 on h1 has failed: ")
    assert "ended with status 0 before" in cat and "was ended by signal 15 before" in sleeping
    assert statuses == [7, 7, 0, -15]
    assert heard == [
        [0, False, "meow"],
        [0, False, "out\n"],
        [0, True, "err\n"],
        [1, False, "out\n"],
        [1, True, "err\n"],
    ]


def test_a_killed_creator_leaves_nothing(cluster: Cluster) -> None:
    program = """
creator = launch.Creator()
processes = creator.start_process(["h1", "h2"], MEMBER, count=2, environment=ENVIRONMENT)
for process in processes:
    process.startpoint.result(60)
print(json.dumps([os.getpid(), [process.pid for process in processes]]), flush=True)
sys.stdin.read()
"""
    command = cluster.command(program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        own, pids = json.loads(process.stdout.readline())
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        os.kill(own, signal.SIGKILL)
        process.wait(20)
    deadline = time.monotonic() + 40
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "processes outlived their creator"
        time.sleep(0.2)


def test_a_farm_by_daemons(cluster: Cluster) -> None:
    results = cluster.run(f"""
import socket
from gambeson import farm

def where(item):
    return item * item, socket.gethostname()

python = ["env", "PYTHONPATH=" + os.environ["PYTHONPATH"], sys.executable]
workers = farm.daemon("h1", "h2", slots=1, python=python, command=[{str(cluster.site.gambeson)!r}, "exec"])
with farm.Manager(where, parallelism=2, workers=workers, security=farm.Security(unpickle=["h1", "h2"]), shm=False,
                  chunk=1) as manager:
    manager.wait_for_workers()
    print(json.dumps(manager.compute(range(40))))
""")
    assert [square for square, _ in results] == [number * number for number in range(40)]
    assert {host for _, host in results} == {"h1", "h2"}


def neighbours(said: str) -> list[str]:
    """Who heard whom, of four on two hosts."""
    return sorted(line for line in said.splitlines() if " heard" in line)


def test_processes_in_rust(cluster: Cluster) -> None:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "examples" / "processes" for profile in ("release", "debug")]
    program = next((path for path in built if path.is_file()), None)
    if program is None:
        pytest.skip(f"no {built[-1]}: run make unit")
    done = cluster.site.shell("h1", f"{program} h1,h2 2")
    assert done.returncode == 0, done
    heard = neighbours(done.stdout)
    hosts = ["h1", "h1", "h2", "h2"]
    for number, line in enumerate(heard):
        assert line.startswith(f"{number} on {hosts[number]} heard: {(number + 1) % 4} of the ocean, process ")
    assert len(heard) == 4


def test_processes_in_c(cluster: Cluster, tree: Path) -> None:
    source = ROOT / "tests" / "programs" / "launch" / "processes.c"
    flags = [*STRICT, "-std=gnu11", "-g", "-pthread", f"-Wl,-rpath,{tree / 'lib'}"]
    program = Installed(tree, cluster.folder).compile("cc", source, *flags)
    done = cluster.site.shell("h1", f"{program} h1 h2")
    assert done.returncode == 0, done
    assert neighbours(done.stdout) == [f"{number} heard {(number + 1) % 4} of the ocean" for number in range(4)]
    assert done.stdout.splitlines()[-1] == "all ok"
    library = tree / "lib" / "libgambeson-link.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {symbol for symbol in symbols.split() if symbol.startswith("gambeson_launch_")}
    assert exported
    assert not {name for name in exported if f"{name}(" not in source.read_text()}
