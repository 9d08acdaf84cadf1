"""The launchers' own processes on other hosts, by daemons and over ssh: their control channel is closed to others.

A launcher listens on every address and sends whoever connects the job's environment and command line; what it sends its
own processes goes over the network in clear. Under `gambeson run` it listens inside its host, and the rest is sealed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.hosts import Hosts, hosts
from harness.jobs import run_marked
from harness.mpis import Mpi, clean_environment

pytestmark = [pytest.mark.namespaces]

SITE = ("h1", "h2", "h3", "h4")
RULES = '[[allow]]\nidentity = "user:root"\naccounts = ["root"]\n'
SECRET = "CANARY-IN-THE-ENVIRONMENT"
MESSAGE = "CANARY-IN-A-MESSAGE"

# Says what a rank has, and waits for the file that ends the test.
PROGRAM = f"""
import os, socket, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
said = world.sendrecv("{MESSAGE}" * 64, dest=(world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
assert said == "{MESSAGE}" * 64
os.write(1, f"{{socket.gethostname()}} {{os.environ.get('SECRET')}}\\n".encode())
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
world.Barrier()
print("rank", world.rank, "is done", flush=True)
"""


class Cluster:
    """h1 to h4 with a daemon each, root's identity on h1, and h5, which is no host of the site."""

    def __init__(self, network: Hosts, gambeson: Path, root: Path) -> None:
        self.network, self.gambeson, self.root = network, gambeson, root
        self.daemons: dict[str, subprocess.Popen[str]] = {}
        (root / "home").mkdir(parents=True)
        (root / "program.py").write_text(PROGRAM)
        self.env = clean_environment() | {"HOME": str(root / "home"), "LOGNAME": "root"}

    def etc(self, host: str) -> str:
        return str(self.root / host)

    def start(self, host: str, *words: str, **options: object) -> subprocess.Popen[str]:
        command = self.network.command(host, [str(self.gambeson), *words])
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]

    def does(self, host: str, *words: str, stdin: str = "") -> None:
        command = self.network.command(host, [str(self.gambeson), *words])
        done = subprocess.run(
            command, env=self.env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done

    def up(self) -> None:
        self.does("h1", "init", "--folder", self.etc("h1"))
        person = self.root / "home/.config/gambeson"
        person.mkdir(parents=True)
        for name in ("authority.pem", "identity.pem"):
            shutil.copy(self.root / "h1" / name, person / name)
        for host in SITE[1:]:
            with self.start("h1", "enroll", "--folder", self.etc("h1"), "--token", host) as offer:
                assert offer.stdout is not None
                self.does(host, "enroll", "--folder", self.etc(host), "--join", "-", stdin=offer.stdout.readline())
        for host in SITE:
            (self.root / host / "daemon.toml").write_text(RULES)
            log = str(self.root / f"{host}.log")
            daemon = self.start(host, "daemon", "--folder", self.etc(host), "--log", log)
            self.daemons[host] = daemon
            assert daemon.stdout is not None and "listening on" in daemon.stdout.readline()

    def down(self) -> None:
        for daemon in self.daemons.values():
            daemon.terminate()
            daemon.wait(20)

    def environment(self, mpi: Mpi) -> dict[str, str]:
        return self.env | mpi.common | {"SECRET": SECRET}

    def command(self, mpi: Mpi, launcher: str, *words: str, count: int = 2) -> list[str]:
        """A job with a rank on each of the first so many hosts."""
        options, environment = self.network.launcher(mpi.name)
        others = "|".join(self.network.names[count:])
        options = [re.sub(rf",({others})(:1)?\b", "", word) for word in options]
        passed = ["-x", "SECRET"] if mpi.is_openmpi else []
        exported = [f"{name}={value}" for name, value in environment.items()]
        # Where daemons are asked for, the launcher's own ssh is not taken.
        own = [str(self.gambeson), "run", "--launcher", launcher, "--"]
        program = [mpi.python, str(self.root / "program.py"), *words]
        job = [*own, *mpi.mpiexec, *options, *passed, "-n", str(count), *program]
        return self.network.command("h1", ["env", *exported, *job])

    @contextlib.contextmanager
    def capture(self) -> Iterator[list[bytes]]:
        """All that goes between the hosts, on every cable; it is in the list afterwards."""
        taps, files, found = [], [], list[bytes]()
        for host in self.network.names:
            file = self.root / f"{host}.pcap"
            words = ["tcpdump", "-i", f"to-{host}", "-U", "--immediate-mode", "-s", "0", "-B", "65536", "-w", str(file)]
            tap = subprocess.Popen(
                ["ip", "netns", "exec", self.network.switch, *words], stderr=subprocess.PIPE, text=True
            )
            assert tap.stderr is not None
            assert any("listening on" in line for line in tap.stderr)
            taps.append(tap)
            files.append(file)
        try:
            yield found
            time.sleep(0.5)
        finally:
            for tap in taps:
                tap.terminate()
                tap.communicate()
        found.extend(file.read_bytes() for file in files)

    @contextlib.contextmanager
    def runs(self, mpi: Mpi, launcher: str) -> Iterator[subprocess.Popen[str]]:
        """A job that both ranks are in, until the block ends; then it has to end well."""
        end = self.root / "end"
        end.unlink(missing_ok=True)
        with (self.root / "output").open("w") as output:
            command = self.command(mpi, launcher, str(end))
            job = subprocess.Popen(command, env=self.environment(mpi), stdout=output, stderr=output, text=True)
            try:
                deadline = time.monotonic() + 60
                while self.output().count(SECRET) < 2 and job.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.1)
                assert self.output().count(SECRET) == 2, self.output()
                yield job
                end.touch()
                assert job.wait(60) == 0, self.output()
                assert self.output().count("is done") == 2, self.output()
            finally:
                job.kill()
                job.wait()

    def output(self) -> str:
        return (self.root / "output").read_text()

    def ports(self, host: str) -> list[tuple[str, int]]:
        """Where something listens that others can reach, but for the daemon."""
        words = ["ip", "netns", "exec", self.network.namespace(host), "ss", "-Hltn"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = [line.split()[3].rsplit(":", 1) for line in listed.splitlines()]
        return [(address, int(port)) for address, port in found if port != "7200"]

    def knock(self, host: str, address: str, ports: list[int], uid: int = 0) -> bytes:
        """What `host` is told at these ports by whom it greets as launchers' own processes do."""
        words = ["ip", "netns", "exec", self.network.namespace(host), sys.executable, "-c", KNOCK, str(uid), address]
        knocked = subprocess.run([*words, *map(str, ports)], capture_output=True, timeout=60, check=True)
        return knocked.stdout


# MPICH's first words are a signature and two numbers, Intel's are 20 bytes.
KNOCK = r"""
import encodings.idna, os, socket, struct, sys
os.setresuid(*[int(sys.argv[1])] * 3)
for port in map(int, sys.argv[3:]):
    for words in (b"HYD\0" + struct.pack("ii", 0, 1), struct.pack("iiiii", 0, 1, 0, 0, 0), b"GET / HTTP/1.0\r\n\r\n"):
        try:
            with socket.create_connection((sys.argv[2], port), 2) as other:
                other.settimeout(0.3)
                other.sendall(words)
                while part := other.recv(65536):
                    sys.stdout.buffer.write(part)
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def cluster(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with hosts(folder, 5) as network:
        made = Cluster(network, gambeson, folder / "site")
        try:
            made.up()
            yield made
        finally:
            made.down()


@pytest.mark.mpis("mpich", "openmpi", "intel")
@pytest.mark.parametrize("launcher", ["daemon", "ssh"])
def test_nothing_of_a_job_is_readable_between_hosts(cluster: Cluster, mpi: Mpi, launcher: str) -> None:
    with cluster.capture() as captured:
        job = run_marked(cluster.command(mpi, launcher), env=cluster.environment(mpi), timeout=90).check()
    assert all(f"{host} {SECRET}" in job.stdout for host in ("h1", "h2")), job.describe()
    # The tests' ssh is none: it carries nothing over the network, so what is seen there passed beside it.
    assert sum(map(len, captured)) > 1000
    for told in (SECRET, MESSAGE, "business", "PMI_", "cmd=", "HYD\0", "FI_PROVIDER"):
        assert all(told.encode() not in traffic for traffic in captured), told


@pytest.mark.mpis("mpich", "openmpi", "intel", "debian-openmpi")
@pytest.mark.parametrize("launcher", ["daemon", "ssh"])
def test_four_hosts(cluster: Cluster, mpi: Mpi, launcher: str) -> None:
    with cluster.capture() as captured:
        job = run_marked(cluster.command(mpi, launcher, count=4), env=cluster.environment(mpi), timeout=90).check()
    assert all(f"{host} {SECRET}" in job.stdout for host in SITE), job.describe()
    assert not any(told.encode() in traffic for told in (SECRET, MESSAGE) for traffic in captured)


@pytest.mark.mpis("mpich", "openmpi", "intel")
@pytest.mark.parametrize("launcher", ["daemon", "ssh"])
def test_strangers_get_nothing_and_the_job_lives_on(cluster: Cluster, mpi: Mpi, launcher: str) -> None:
    with cluster.runs(mpi, launcher) as job:
        told = b""
        for host in ("h1", "h2"):
            own = cluster.network.address(host)
            listening = cluster.ports(host)
            ports = [port for _, port in listening]
            assert ports, f"what stands in for the launcher listens on {host}: {cluster.output()}"
            told += cluster.knock("h5", own, ports)
            # Another user of the host, and root's own process that is none of the job's.
            for address in ("127.0.0.1", own):
                told += cluster.knock(host, address, ports, uid=65534)
            if host == "h2":
                told += cluster.knock(host, "127.0.0.1", ports)
            time.sleep(0.5)
            assert job.poll() is None, f"{host}: {cluster.output()}"
        assert SECRET.encode() not in told and b"python" not in told and b"cmd=" not in told, told


@pytest.mark.mpis("mpich", "openmpi", "intel")
def test_a_launcher_listens_inside_its_host(cluster: Cluster, mpi: Mpi) -> None:
    with cluster.runs(mpi, "daemon") as job:
        assert job.poll() is None
        for host in ("h1", "h2"):
            words = ["ip", "netns", "exec", cluster.network.namespace(host), "ss", "-Hltnp"]
            listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            own = [
                line.split()[3] for line in listed.splitlines() if re.search(LAUNCHERS, line) and ":7200 " not in line
            ]
            assert all(address.startswith(("127.0.0.1:", "[::1]:")) for address in own), listed
            assert own, listed


LAUNCHERS = r'"(mpiexec|mpiexec\.hydra|hydra_\w+|prterun|prted|gambeson)"'


@pytest.mark.mpis("mpich")
def test_a_host_without_a_daemon_ends_the_job(cluster: Cluster, mpi: Mpi) -> None:
    """Nothing is tried instead: neither ssh, nor in clear."""
    command = [word.replace("h1,h2", "h1,h5") for word in cluster.command(mpi, "daemon")]
    job = run_marked(command, env=cluster.environment(mpi), timeout=60)
    assert job.status == 70, job.describe()
    assert "the job's secret cannot be carried to h5: h5: " in job.stderr, job.describe()
    assert "see that `gambeson exec h5 -- true` works, or choose --launcher ssh" in job.stderr
    assert SECRET not in job.stdout


@pytest.mark.mpis("mpich")
def test_daemons_are_chosen_by_who_has_an_identity(cluster: Cluster, mpi: Mpi) -> None:
    command = [str(cluster.gambeson), "run", "--", *mpi.mpiexec, "-hosts", "h1,h2", "-ppn", "1", "-n", "2", "hostname"]
    job = cluster.network.run("h1", command, env=cluster.environment(mpi)).check()
    assert sorted(job.stdout.split()) == ["h1", "h2"]
    assert "note: other hosts are reached by their daemons (gambesond)" in job.stderr
    stranger = cluster.environment(mpi) | {"HOME": str(cluster.root)}
    job = cluster.network.run("h1", [*command[:2], "--launcher", "daemon", *command[2:]], env=stranger)
    assert job.status == 70 and "--launcher daemon needs an identity of your site" in job.stderr, job.describe()


@pytest.mark.mpis("mpich", "openmpi", "intel")
@pytest.mark.parametrize("victim", ["launcher", "agent", "rank"])
def test_who_is_killed_leaves_nothing(cluster: Cluster, mpi: Mpi, victim: str) -> None:
    with (cluster.root / "output").open("w") as output:
        command = cluster.command(mpi, "daemon", str(cluster.root / "never"))
        job = subprocess.Popen(command, env=cluster.environment(mpi), stdout=output, stderr=output, text=True)
        try:
            while cluster.output().count(SECRET) < 2 and job.poll() is None:
                time.sleep(0.1)
            pid = next(pid for pid, line in below(job.pid) if re.search(VICTIMS[victim], line))
            files = next(Path(word) for word in environ(pid) if word.startswith("/dev/shm/gambeson-"))
            assert files.exists()
            os.kill(pid, signal.SIGKILL)
            status = job.wait(60)
            assert status != 0, cluster.output()
            if mpi.is_openmpi and victim == "agent":
                # Its launcher says so and ends with 0, without Gambeson too.
                assert status == 71 and "the connection to h2 was lost" in cluster.output(), cluster.output()
            deadline = time.monotonic() + 20
            while (left := processes(str(cluster.root / "never"))) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not left, (left, cluster.output())
        finally:
            job.kill()
            job.wait()
            for pid in processes(str(cluster.root / "never")):
                os.kill(pid, signal.SIGKILL)
    assert not files.exists()


VICTIMS = {
    "launcher": r"^\S*/(mpiexec|prterun) ",
    "agent": r"^\S*/gambeson-agent ",
    "rank": r"^\S*/python\S* \S*/program.py ",
}


def below(pid: int) -> list[tuple[int, str]]:
    """The processes that one has started, with their command lines."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [(child, line), *below(child)]
    return found


def environ(pid: int) -> list[str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return [pair.partition("=")[2] for pair in pairs if pair.startswith("GAMBESON_JOB=")]


def processes(word: str) -> dict[int, str]:
    """Whose command lines have this word in them."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line and int(entry.name) != os.getpid():
                found[int(entry.name)] = line
    return found


STATIC = r"""
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--version")) return !printf("HYDRA build details:\n    Version: 5.0.2\n");
    struct sockaddr_in any = { .sin_family = AF_INET };
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    return bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 9) || sleep(4);
}
"""


def test_a_launcher_that_loads_no_guard_is_stopped(gambeson: Path, tmp_path: Path) -> None:
    (tmp_path / "launcher.c").write_text(STATIC)
    for name, options in (("mpiexec", ["-static"]), ("mpiexec.hydra", [])):
        launcher = tmp_path / name
        subprocess.run(["cc", *options, "-o", launcher, tmp_path / "launcher.c"], check=True)
        job = run_marked(
            [str(gambeson), "run", "--", str(launcher), "-n", "1", "true"], env=clean_environment(), timeout=60
        )
        if options:
            assert job.status == 70 and job.seconds < 15, job.describe()
            assert re.search(r"mpiexec listens at 0\.0\.0\.0:\d+, where others could connect", job.stderr), (
                job.describe()
            )
        else:
            assert job.status == 0, job.describe()
