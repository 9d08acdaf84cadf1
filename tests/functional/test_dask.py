"""Dask over gambeson://, with Dask as its users have it: clusters of real processes, its own commands, two hosts."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.hosts import Hosts
from harness.python import Package

CREDENTIAL = "DASK_DISTRIBUTED__COMM__GAMBESON__CREDENTIAL"
SHM = "DASK_DISTRIBUTED__COMM__GAMBESON__SHM"
COMPRESSION = "DASK_DISTRIBUTED__COMM__COMPRESSION"
TRUSTED = {"DASK_DISTRIBUTED__COMM__GAMBESON__TRUSTED": '["10.77.0.0/24"]'}
ELSEWHERE = {"DASK_DISTRIBUTED__COMM__GAMBESON__TRUSTED": '["10.99.0.0/16"]'}
ENCRYPTED = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
CANARY = "canary-5f1d0c"

BEGIN = """
import json, logging, os, sys, time
import dask, numpy
from distributed import Client, LocalCluster
from gambeson.dask import credential

logging.disable(logging.ERROR)
"""


def test_a_local_cluster_computes_and_all_of_it_goes_over_links(package: Package, tmp_path: Path) -> None:
    program = f"""{BEGIN}
def total(array):
    return float(array.sum())

def where():
    return os.getpid()

if __name__ == "__main__":
    dask.config.set({{"distributed.comm.gambeson.credential": credential("cluster.toml")}})
    with (
        LocalCluster(protocol="gambeson://", n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first, second = client.scheduler_info()["workers"]
        array = numpy.arange(2_000_000, dtype=float)
        there = client.scatter(array, workers=[first])
        moved = client.submit(total, there, workers=[second]).result()
        back = there.result()
        back += 1
        many = sum(client.gather(client.map(lambda number: number + 1, range(2000))))
        try:
            client.submit(lambda: 1 // 0).result()
        except ZeroDivisionError as error:
            raised = str(error)
        comms = [client.scheduler_comm.comm.peer_address, *client.run(where)]
        print(json.dumps([moved, float(back.sum()), many, raised, comms]))
"""
    moved, back, many, raised, addresses = package.run(program, tmp_path)
    assert (moved, back, many) == (1999999000000.0, 2000001000000.0, 2001000)
    assert "division" in raised
    assert len(addresses) == 3
    assert all(address.startswith("gambeson://127.0.0.1:") for address in addresses)
    facts = (tmp_path / "cluster.toml").stat()
    assert facts.st_mode & 0o777 == 0o600


class Cluster:
    """A scheduler and workers that Dask's commands started."""

    def __init__(self, package: Package, folder: Path) -> None:
        self.package = package
        self.folder = folder
        self.credential = folder / "cluster.toml"
        self.processes: list[subprocess.Popen[str]] = []
        # Shared memory and compression would hide from a capture what goes over.
        settings = {CREDENTIAL: str(self.credential), SHM: "false", COMPRESSION: "false"}
        self.environment = {**package.environment(), **settings}
        package.call(f"from gambeson.dask import credential; credential({str(self.credential)!r})", folder)

    def start(
        self, *words: str, inside: list[str] | None = None, settings: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command = [*(inside or []), str(self.package.python), "-m", "dask", *words]
        environment = {**self.environment, **(settings or {})}
        log = (self.folder / f"log-{len(self.processes)}").open("w")
        with log:
            process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log, text=True)
        self.processes.append(process)
        return process

    def scheduler(
        self,
        *words: str,
        protocol: str = "gambeson",
        inside: list[str] | None = None,
        settings: dict[str, str] | None = None,
    ) -> str:
        file = self.folder / "scheduler.json"
        options = ["--protocol", f"{protocol}://", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        self.start("scheduler", *options, *words, inside=inside, settings=settings)
        deadline = time.monotonic() + 60
        while not (file.is_file() and file.read_text()):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)
        address: str = json.loads(file.read_text())["address"]
        return address

    def worker(
        self, *words: str, inside: list[str] | None = None, settings: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        options = ["--scheduler-file", str(self.folder / "scheduler.json"), "--nthreads", "1", "--no-dashboard"]
        return self.start("worker", *options, "--death-timeout", "60", *words, inside=inside, settings=settings)

    def client(
        self,
        program: str,
        *,
        credential: Path | None = None,
        inside: list[str] | None = None,
        settings: dict[str, str] | None = None,
    ) -> str:
        """What a program prints that finds the cluster's address in `ADDRESS`."""
        file = self.folder / "client.py"
        address = json.loads((self.folder / "scheduler.json").read_text())["address"]
        file.write_text(f"{BEGIN}\nADDRESS = {address!r}\n{program}")
        environment = {**self.environment, CREDENTIAL: str(credential or self.credential), **(settings or {})}
        done = subprocess.run(
            [*(inside or []), str(self.package.python), str(file)],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + self.logs()
        return done.stdout

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("log-*")))

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(package: Package, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(package, tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_a_killed_worker_is_noticed_and_its_work_done_again(cluster: Cluster) -> None:
    cluster.scheduler()
    for name in ("doomed", "steady"):
        cluster.worker("--no-nanny", "--name", name)
    out = cluster.client("""
def slow(number):
    time.sleep(0.1)
    return number, os.getpid()

with Client(ADDRESS) as client:
    client.wait_for_workers(2, timeout=60)
    doomed = {worker["name"]: address for address, worker in client.scheduler_info()["workers"].items()}["doomed"]
    tasks = client.map(slow, range(40))
    while sum(task.done() for task in tasks) < 6:
        time.sleep(0.01)
    pid = client.run(os.getpid, workers=[doomed])[doomed]
    os.kill(pid, 9)
    killed = time.time()
    while len(client.scheduler_info()["workers"]) == 2:
        time.sleep(0.01)
    noticed = time.time() - killed
    results = client.gather(tasks)
    print(json.dumps([noticed, sorted(number for number, _ in results), pid in {pid for _, pid in results}]))
""")
    noticed, numbers, from_doomed = json.loads(out)
    assert numbers == list(range(40))
    assert not from_doomed
    # The session waits so long for another connection (distributed.comm.gambeson.patience).
    assert noticed < 10


STRANGER = """
try:
    client = Client(ADDRESS.replace("gambeson://", PROTOCOL), timeout=10)
except BaseException as error:
    said = [str(error)]
    while (error := error.__cause__) is not None:
        said.append(str(error))
    print("refused:", " / ".join(said))
else:
    print("admitted:", client)
"""


def test_strangers_are_refused_and_the_cluster_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.scheduler()
    cluster.worker("--no-nanny")
    others = tmp_path / "others.toml"
    cluster.package.call(f"from gambeson.dask import credential; credential({str(others)!r})", tmp_path)
    out = cluster.client(f"PROTOCOL = 'tcp://'\n{STRANGER}")
    assert out.startswith("refused:")
    out = cluster.client(f"PROTOCOL = 'gambeson://'\n{STRANGER}", credential=others)
    assert out.startswith("refused:") and "does not accept this domain" in out
    # Whoever speaks Dask's own protocol hears nothing of it.
    host, port = address.removeprefix("gambeson://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.sendall(bytes(64))
        heard = b""
        with contextlib.suppress(ConnectionError):
            while more := plain.recv(4096):
                heard += more
    assert b"python" not in heard and b"op" not in heard
    # A client of several clusters names the credential of each.
    out = cluster.client(
        f"""
from distributed import Security

with Client(ADDRESS, security=Security(extra_conn_args={{"credential": {str(cluster.credential)!r}}})) as client:
    client.wait_for_workers(1, timeout=60)
    print(client.submit(sum, [1, 2]).result())
""",
        credential=others,
    )
    assert out.strip() == "3"
    assert "it belongs to another job, or to none" in cluster.logs()
    assert "does not speak TLS" in cluster.logs()


@contextlib.contextmanager
def capture(inside: list[str], wire: Path) -> Iterator[None]:
    """Writes all that a host sends and gets to a file."""
    command = [*inside, "tcpdump", "-i", "eth0", "-U", "--immediate-mode", "-s", "0", "-B", "65536", "-w", str(wire)]
    tap = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert tap.stderr is not None and "listening" in tap.stderr.readline()
        yield
    finally:
        tap.send_signal(signal.SIGINT)
        _, said = tap.communicate(timeout=20)
    assert "\n0 packets dropped by kernel" in said, said


@pytest.mark.namespaces
@pytest.mark.parametrize("protocol", ["tcp", "gambeson"])
def test_nothing_between_hosts_is_in_clear(cluster: Cluster, two_hosts: Hosts, tmp_path: Path, protocol: str) -> None:
    here, there = (two_hosts.command(host, []) for host in ("h1", "h2"))
    wire = tmp_path / "wire"
    with capture(here, wire):
        cluster.scheduler("--host", two_hosts.address("h1"), protocol=protocol, inside=here)
        for host, inside in (("h1", here), ("h2", there)):
            cluster.worker("--no-nanny", "--name", host, "--host", two_hosts.address(host), inside=inside)
        out = cluster.client(
            f"""
def {CANARY.replace("-", "_")}(text):
    return text[::-1]

with Client(ADDRESS) as client:
    client.wait_for_workers(2, timeout=60)
    names = {{worker["name"]: address for address, worker in client.scheduler_info()["workers"].items()}}
    text = ("-".join({CANARY.split("-")!r}) + " ") * 1000
    data = client.scatter(text, workers=[names["h2"]])
    task = client.submit({CANARY.replace("-", "_")}, data, workers=[names["h1"]])
    print(task.result()[::-1] == text, len(names))
""",
            inside=there,
        )
        assert out.strip() == "True 2"
        cluster.stop()
    seen = wire.read_bytes()
    assert len(seen) > 20_000
    words = [CANARY.encode(), CANARY[::-1].encode(), CANARY.replace("-", "_").encode(), b"update-graph", b"get_data"]
    found = [word for word in words if word in seen]
    assert found == (words if protocol == "tcp" else [])


# Each word is in a result of its own, long enough to be sent as a message of its own. Results go from one host to the
# other when a task there needs them, or when the client asks for them.
LABELS = """
import dask.array, gambeson.dask
from distributed import get_worker, wait, worker_client
from distributed.worker import get_data_from_worker

def make(word):
    "CODE-CANARY"
    return numpy.frombuffer((word + "-CANARY ").encode() * 20_000, "u1").copy()

def derive(array, word):
    return numpy.concatenate([array, make(word)])

def length(array):
    return len(array)

def inside(word):
    here = get_worker().address
    with worker_client() as client:
        made = client.submit(make, word, workers=[here])
        others = [address for address in client.scheduler_info(n_workers=-1)["workers"] if address != here]
        return client.submit(length, made, workers=others).result()

def slow(word):
    time.sleep(2)
    return make(word)

async def fetch(key, address, dask_worker):
    return (await get_data_from_worker(dask_worker.rpc, [key], address))["data"].keys() == {key}

def sealed():
    return dask.annotate(gambeson="privacy")

with Client(ADDRESS) as client:
    client.wait_for_workers(2, timeout=60)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    names = {worker["name"]: address for address, worker in workers.items()}
    h1, h2 = names["h1"], names["h2"]

    def at(host, function, *arguments, **options):
        task = client.submit(function, *arguments, workers=[host], **options)
        wait(task)
        return task

    def moves(task, host):
        return at(host, length, task).result()

    # Nobody labelled these: between the workers in both directions, and to the client by way of the scheduler.
    assert moves(at(h1, make, "PUBLIC"), h2) and moves(at(h2, make, "REVERSE"), h1)
    gathered = at(h1, make, "GATHERED").result()
    assert gathered.tobytes() == b"GATHERED-CANARY " * 20_000
    gathered += 1
    assert len(client.gather(at(h1, make, "DIRECT"), direct=True))
    several = client.map(make, ["SEVERAL-%d" % number for number in range(5)], workers=[h1])
    assert moves(several, h2) == 5

    with sealed():
        secret = at(h1, make, "SECRET")
    assert moves(secret, h2)
    # What is derived from it, by steps that nobody labelled, here and there, and by graphs that came later.
    derived = at(h2, derive, secret, "DERIVED")
    again = at(h1, derive, at(h2, derive, derived, "TWICE"), "THRICE")
    assert moves(again, h2) and len(again.result())

    # Labels of layers, which Dask loses when it fuses them.
    with sealed():
        layer = dask.array.zeros(1, chunks=1, dtype="u1").map_blocks(lambda block: make("LAYER"), chunks=(260_000,))
    layer = (layer + 0).persist(workers=[h2])
    assert len(layer.compute()) == 260_000

    # What was scattered, and what is made of it.
    scattered = client.scatter(make("SCATTERED"), workers=[h1])
    assert moves(scattered, h2) and moves(at(h1, derive, scattered, "OF-SCATTERED"), h2)

    # What a task submits belongs to what the task is labelled with.
    with sealed():
        assert at(h1, inside, "INSIDE").result()

    # A label that comes when the key is there, and something was made of it.
    late = at(h1, make, "LATE", key="late")
    of_late = at(h1, derive, late, "OF-LATE")
    with Client(ADDRESS, set_as_default=False) as other, sealed():
        again = other.submit(make, "LATE", key="late")
        assert other.submit(length, [0] * 7).result() == 7
        assert moves(late, h2) and moves(of_late, h2)

    # A task that was given up and goes on, under a key that is labelled when it comes back.
    given_up = client.submit(slow, "GIVEN-UP", key="slow", workers=[h2])
    while not client.run(lambda dask_worker: dask_worker.state.executing_count, workers=[h2])[h2]:
        time.sleep(0.02)
    given_up.release()
    while client.run_on_scheduler(lambda dask_scheduler: "slow" in dask_scheduler.tasks):
        time.sleep(0.02)
    with sealed():
        again = at(h1, make, "GIVEN-UP", key="slow")
    assert moves(again, h2) and client.run(fetch, "slow", h2, workers=[h1])[h1]

    # Functions and arguments, results that are no task's, and names, however long.
    assert at(h1, length, "GRAPH-CANARY" * 20_000).result()
    assert len(client.run(make, "RUN", workers=[h2])[h2])
    assert moves(at(h1, make, "NAMED", key="NAME-CANARY" * 20_000), h2)

    # A copy that another worker fetched.
    with sealed():
        fetched = at(h1, make, "FETCHED")
    client.replicate(fetched, n=2)
    explained = gambeson.dask.explain(client)
    client.retire_workers([h1])
    assert len(fetched.result()) and str(explained)
    print(json.dumps([h1, explained.records()]))
"""
WORDS = {
    *(
        "PUBLIC",
        "REVERSE",
        "GATHERED",
        "DIRECT",
        "SEVERAL-1",
        "SECRET",
        "DERIVED",
        "TWICE",
        "THRICE",
        "LAYER",
        "SCATTERED",
    ),
    *("OF-SCATTERED", "INSIDE", "LATE", "OF-LATE", "GIVEN-UP", "GRAPH", "RUN", "NAMED", "NAME", "FETCHED", "CODE"),
}
OPEN = {"PUBLIC", "REVERSE", "GATHERED", "DIRECT", "SEVERAL-1", "NAMED"}


@pytest.mark.namespaces
@pytest.mark.parametrize(
    # What the scheduler, the workers and the client have, the first two on h1; and by which rule h1 sends to h2.
    ("settings", "readable", "rule"),
    [
        ([TRUSTED] * 4, OPEN, "the policies of both ends trust the network between"),
        ([TRUSTED, TRUSTED, TRUSTED, {}], OPEN - {"GATHERED", "DIRECT"}, "the policies of both ends trust the network"),
        ([TRUSTED, TRUSTED, {}, {}], set(), "the other end has all of it sealed"),
        ([TRUSTED, TRUSTED, ELSEWHERE, ELSEWHERE], set(), "the policy of the other end seals it: "),
        ([ELSEWHERE, ELSEWHERE, TRUSTED, TRUSTED], set(), "the policy of this end seals it"),
        ([{}, TRUSTED, TRUSTED, TRUSTED], set(), "the policies of both ends trust the network between"),
        ([{**TRUSTED, **ENCRYPTED}] * 4, set(), "Dask requires encryption here"),
        ([{}] * 4, set(), "this end trusts no network, and has no policy"),
    ],
)
def test_what_is_labelled_is_sealed_whatever_becomes_of_it(
    cluster: Cluster,
    two_hosts: Hosts,
    tmp_path: Path,
    settings: list[dict[str, str]],
    readable: set[str],
    rule: str,
) -> None:
    here, there = (two_hosts.command(host, []) for host in ("h1", "h2"))
    wire = tmp_path / "wire"
    of = dict(zip(("scheduler", "h1", "h2", "client"), settings, strict=True))
    with capture(here, wire):
        cluster.scheduler("--host", two_hosts.address("h1"), inside=here, settings=of["scheduler"])
        for host, inside in (("h1", here), ("h2", there)):
            options = ["--no-nanny", "--name", host, "--host", two_hosts.address(host)]
            cluster.worker(*options, inside=inside, settings=of[host])
        out = cluster.client(LABELS, inside=there, settings=of["client"])
        cluster.stop()
    seen = wire.read_bytes()
    assert len(seen) > 5_000_000
    assert {word for word in WORDS if f"{word}-CANARY".encode() in seen} == readable
    first, records = json.loads(out)
    lines = [one for one in records if one["process"] == first and one["host"] == "10.77.0.2" and one["accepted"]]
    assert any(rule in line["rule"] for line in lines)
    assert (sum(line["authenticated"] for line in lines) > 1_000_000) == bool(readable)
    assert sum(line["sealed"] for line in lines) > 1_000_000


def test_in_a_job_its_policy_says_what_is_sealed(package: Package, gambeson: Path, tmp_path: Path) -> None:
    rule = '[[rule]]\nbetween = ["*", "*"]\nclass = "task"\nprotection = "none"\n'
    (tmp_path / "gambeson.toml").write_text(f'protection = "privacy"\n{rule}')
    (tmp_path / "program.py").write_text(f"""{BEGIN}
import gambeson.dask

if __name__ == "__main__":
    with (
        LocalCluster(protocol="gambeson://", n_workers=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        public = client.submit(numpy.ones, 100_000).result()
        with dask.annotate(gambeson="patients"):
            private = client.submit(numpy.ones, 200_000).result()
        found = gambeson.dask.explain(client).records()
        print(json.dumps([[len(public), len(private)], [one for one in found if one["process"] != "scheduler"]]))
""")
    job = [str(gambeson), "run", "--policy", "gambeson.toml", "--", str(package.python), "program.py"]
    done = subprocess.run(job, env=package.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lengths, traffic = json.loads(done.stdout)
    assert lengths == [100_000, 200_000]
    # Links of data have integrity at least.
    (line,) = [one for one in traffic if one["protection"] == "authenticated"]
    assert line["authenticated"] == 800_000
    assert 1_600_000 < line["sealed"] < 1_700_000


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "gambeson:// does not know who belongs to the cluster: make a credential"),
        (
            {"credential": "absent.toml"},
            "absent.toml cannot be read: No such file or directory; gambeson.dask.credential(",
        ),
        (
            {"credential": "open.toml"},
            "others than its owner can get at the cluster's credential open.toml (mode 0644)",
        ),
        ({"credential": "text.toml"}, "text.toml is no credential of a cluster"),
        ({"credential": 5}, "distributed.comm.gambeson.credential is a text, and not 5"),
        (
            {"credentials": "cluster.toml"},
            "distributed.comm.gambeson.credentials is no setting; there are authorities,",
        ),
        (
            {"certificate": "a.pem"},
            "certificate, key and authorities go together; distributed.comm.gambeson.key is missing",
        ),
        (
            {"credential": "cluster.toml", "trusted": "10.0.0.0/8"},
            """distributed.comm.gambeson.trusted is a list of networks, as ["10.1.0.0/16"], and not '10.0.0.0/8'""",
        ),
        (
            {"credential": "cluster.toml", "trusted": ["10.0.0.5/8"]},
            "distributed.comm.gambeson.trusted has what is no network: 10.0.0.5/8 has host bits set",
        ),
        (
            {"credential": "cluster.toml", "trusted": ["10.0.0.0/8"], "policy": "gambeson.toml"},
            "distributed.comm.gambeson.trusted is short for a policy; set one of them",
        ),
        (
            {"credential": "cluster.toml", "policy": "absent.toml"},
            "the policy absent.toml cannot be read (No such file or directory",
        ),
        (
            {"trusted": ["10.0.0.0/8"]},
            "distributed.comm.gambeson.trusted goes with a credential or certificates, and there are none",
        ),
        ({"credential": "cluster.toml", "shm": "no"}, "distributed.comm.gambeson.shm is true or false, and not 'no'"),
        (
            {"credential": "cluster.toml", "certificate": "a", "key": "b", "authorities": "c"},
            "set either distributed.comm.gambeson.credential or certificate, key and authorities, not both",
        ),
    ],
)
def test_a_bad_configuration_has_its_sentence(
    package: Package, tmp_path: Path, settings: dict[str, object], sentence: str
) -> None:
    package.call("from gambeson.dask import credential; credential('cluster.toml')", tmp_path)
    for name, mode, text in (("open.toml", 0o644, ""), ("text.toml", 0o600, "job = 'x'\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    program = f"""{BEGIN}
if __name__ == "__main__":
    dask.config.set({{"distributed.comm.gambeson": {settings!r}}})
    try:
        Client("gambeson://127.0.0.1:1", timeout=2)
    except Exception as error:
        print(json.dumps(str(error)))
"""
    assert sentence in package.run(program, tmp_path)


COMMS = f"""{BEGIN}
import asyncio
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

async def closed(doing):
    try:
        await asyncio.wait_for(doing, 10)
    except CommClosedError as error:
        return str(error)

async def main():
    dask.config.set({{"distributed.comm.gambeson.credential": credential("cluster.toml")}})
    there = asyncio.Queue()
    async with listen("gambeson://127.0.0.1", there.put) as listener:
        pairs = []
        for _ in range(4):
            pairs.append((await connect(listener.contact_address), await there.get()))
    said = {{}}
    # What was written before the end is read; then it is over for both, for reading and writing.
    ours, theirs = pairs[0]
    arrays = [numpy.full(1_000_000 + number, number, "u1") for number in range(40)]
    for array in arrays:
        await ours.write({{"array": to_serialize(array)}})
    closing = asyncio.ensure_future(ours.close())
    said["read"] = all([((await theirs.read())["array"] == array).all() for array in arrays])
    await closing
    said["after"] = [await closed(theirs.read()), await closed(theirs.write({{}})), await closed(ours.read())]
    said["closed"] = [ours.closed(), theirs.closed()]
    # Who waits hears of it.
    ours, theirs = pairs[1]
    reading = asyncio.ensure_future(closed(theirs.read()))
    await asyncio.sleep(0.1)
    ours.abort()
    said["waiting"] = await reading
    # A comm that nobody reads says so, too.
    ours, theirs = pairs[2]
    ours.abort()
    deadline = time.monotonic() + 10
    while not theirs.closed() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    said["unread"] = theirs.closed()
    # Buffers of one message are free each for itself, and may be written into.
    ours, theirs = pairs[3]
    await ours.write([to_serialize(array) for array in arrays[:3]])
    one, *_ = await theirs.read()
    one += 1
    said["own"] = int(one.sum())
    theirs.abort()
    print(json.dumps(said))

asyncio.run(main())
"""


def test_a_comm_that_is_closed_says_so(package: Package, tmp_path: Path) -> None:
    said = package.run(COMMS, tmp_path)
    assert said["read"] is True
    assert all(said["after"]) and "the other end closed it" in said["after"][0]
    assert said["closed"] == [True, True]
    assert "the other end closed it" in said["waiting"]
    assert said["unread"] is True
    assert said["own"] == 1_000_000


def test_dask_may_require_encryption(package: Package, tmp_path: Path) -> None:
    program = f"""{BEGIN}
if __name__ == "__main__":
    settings = {{"gambeson.credential": credential("cluster.toml"), "require-encryption": True}}
    dask.config.set({{f"distributed.comm.{{name}}": value for name, value in settings.items()}})
    with (
        LocalCluster(protocol="gambeson://", n_workers=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        print(client.submit(sum, [1, 2]).result())
"""
    assert package.run(program, tmp_path) == 3


def test_a_shared_credential_is_made_once(package: Package, tmp_path: Path) -> None:
    program = "import sys; from gambeson.dask import credential; print(open(credential(sys.argv[1])).read())"
    made = [
        subprocess.Popen(
            [str(package.python), "-c", program, "cluster.toml"],
            cwd=tmp_path,
            env=package.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    texts = {process.communicate(timeout=60)[0] for process in made}
    assert len(texts) == 1 and "secret" in texts.pop()
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]
