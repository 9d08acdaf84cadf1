"""gambeson.farm with workers on other hosts, of which not all are trusted."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import unavailable
from harness.farms import Farmer, Keys, station
from harness.hosts import Hosts, hosts
from harness.mpis import Mpi, Unavailable
from harness.python import Package
from harness.slurm import slurm

pytestmark = [pytest.mark.namespaces]


CANARIES = """
@farm.sensitive_data("in", label="patients")
def count(text): return len(text)

@farm.sensitive_data("out", label="findings")
def find(text): return "FINDING-" + text[-4:] * 3

@farm.sensitive_code
def secret(text):
    "CODE-CANARY-SECRET"
    return len(text)

def harmless(text):
    "CODE-CANARY-HARMLESS"
    return text.lower()

def derived(text): return "derived-" + text

texts = lambda name: [name + "-CANARY-%04d" % at for at in range(20)]
with Manager(harmless, parallelism=1, workers=ssh("h2"), security=security) as manager:
    manager.compute(texts("HARMLESS"))
    manager.compute([farm.labelled(text, "own") for text in texts("LABELLED")])
    rules = [(line.code, line.data, line.data_rule) for line in manager.explain().lines]
for program, name in [(count, "PATIENTS"), (farm.pipeline(find, derived), "INPUT"), (secret, "OF-SECRET-CODE")]:
    with Manager(program, parallelism=1, workers=ssh("h2"), security=security) as manager:
        manager.compute(texts(name))
print(json.dumps(rules))
"""
WORDS = (
    "HARMLESS-CANARY-0001", "harmless-canary-0001", "LABELLED-CANARY-0001", "labelled-canary-0001",
    "PATIENTS-CANARY-0001", "INPUT-CANARY-0001", "FINDING-000100010001", "derived-FINDING", "OF-SECRET-CODE-CANARY",
    "CODE-CANARY-SECRET", "CODE-CANARY-HARMLESS",
)  # fmt: skip


@pytest.mark.parametrize(
    ("security", "readable"),
    [
        ("farm.Security()", set()),
        (
            'farm.Security(trusted=["10.77.0.0/24"])',
            {"HARMLESS-CANARY-0001", "harmless-canary-0001", "CODE-CANARY-HARMLESS"},
        ),
        ('farm.Security(trusted=["10.77.0.0/24"], insecure_hosts=["h2"])', set()),
        ('farm.Security(trusted=["10.77.0.0/24"], insecure_hosts=["10.77.0.2"])', set()),
    ],
)
def test_what_is_sensitive_is_sealed_on_the_wire(
    farmer: Farmer, tmp_path: Path, security: str, readable: set[str]
) -> None:
    trace = tmp_path / "trace.pcap"
    with farmer.capture(trace):
        rules = farmer.run(f"security = {security}\n{CANARIES}")
    seen = trace.read_bytes()
    assert len(seen) > 20_000
    assert {word for word in WORDS if word.encode() in seen} == readable
    how = "authenticated" if readable else "sealed"
    assert [(code, data) for code, data, _ in rules] == [(how, how)]


def test_data_goes_only_to_hosts_that_are_cleared_for_its_label(farmer: Farmer) -> None:
    found = farmer.run("""
import socket
def where(item):
    time.sleep(0.002)
    return item, socket.gethostname()
@farm.sensitive_data("in", label="patients")
def read(item): return item
@farm.declassifies("patients")
def publish(item): return item

security = farm.Security(clearance={"h2": ["patients"]})
with Manager(where, parallelism=2, workers=ssh("h2", "h3"), security=security, chunk=1) as manager:
    manager.wait_for_workers()
    items = [farm.labelled(at, "patients") if at % 2 else at for at in range(60)]
    mixed = manager.compute(items)
    explained = str(manager.explain())
with Manager(farm.pipeline(read, where), parallelism=2, workers=ssh("h2", "h3"), security=security,
                  chunk=1) as manager:
    manager.wait_for_workers()
    derived = manager.compute(range(40))
    never = [line.host for line in manager.explain().lines if line.data == "never"]
with Manager(farm.pipeline(read, publish, where), parallelism=2, workers=ssh("h2", "h3"), security=security,
                  chunk=1) as manager:
    manager.wait_for_workers()
    public = manager.compute(range(40))
with Manager(read, parallelism=1, workers=ssh("h3"), security=security, patience=0.5) as manager:
    nobody = outcomes(manager.compute([1], errors="return"))
print(json.dumps([mixed, derived, never, public, nobody, explained]))
""")
    mixed, derived, never, public, nobody, explained = found
    assert {host for at, host in mixed if at % 2} == {"h2"}
    assert "h3" in {host for at, host in mixed if at % 2 == 0}
    assert {host for _, host in derived} == {"h2"}, "the label is lost behind the stage that named it"
    assert set(never) == {"h3"}
    assert {host for _, host in public} == {"h2", "h3"}
    assert len(nobody) == 1
    assert "data labelled patients, which no worker may see; it waited 0.5 s for one on h2" in nobody[0]
    assert "results  as plain data" in explained


def test_what_a_worker_lacks_is_named(farmer: Farmer, tmp_path: Path) -> None:
    (tmp_path / "onlyhere.py").write_text("class Own: pass\ndef double(x): return 2 * x\n")
    found = farmer.run(f"""
sys.path.insert(0, {str(tmp_path)!r})
import onlyhere
def same(x): return 1
with Manager(same, parallelism=1, workers=ssh("h2")) as manager:
    data = outcomes(manager.compute([onlyhere.Own(), 3], errors="return"))
with Manager(onlyhere.double, parallelism=1, workers=ssh("h2")) as manager:
    code = outcomes(manager.compute([3], errors="return"))
print(json.dumps([data, code]))
""")
    data, code = found
    assert (
        "the data of a task cannot be loaded: ModuleNotFoundError: No module named 'onlyhere'; install that" in data[0]
    )
    assert data[1] == 1, "the worker has ended"
    assert "stage 'double' cannot be loaded" in code[0] and "No module named 'onlyhere'" in code[0]


def test_results_of_workers_that_are_not_trusted_are_data_and_nothing_else(farmer: Farmer) -> None:
    found = farmer.run("""
import numpy
class Own:
    pass
def gives(kind):
    if kind == "own": return Own()
    if kind == "raises": raise LookupError("not there")
    import decimal, pyarrow
    return {"array": numpy.arange(6.0).reshape(2, 3), "arrow": pyarrow.table({"a": [1, 2]}),
            "nested": {"a": (1, [2.5, None, {3}], b"x" * 5000, 1 << 80, 2j)}, "decimal": decimal.Decimal(1)}[kind]

with Manager(gives, parallelism=1, workers=ssh("h2")) as manager:
    array, arrow, nested, own, decimal, raises = manager.compute(
        ["array", "arrow", "nested", "own", "decimal", "raises"], errors="return")
    plain = [array.tolist(), arrow.to_pydict(), nested == {"a": (1, [2.5, None, {3}], b"x" * 5000, 1 << 80, 2j)},
             str(own.error), str(decimal.error), type(raises.error).__name__, str(raises.error),
             "LookupError" in str(raises.error.__cause__)]
with Manager(gives, parallelism=1, workers=ssh("h2"),
                  security=farm.Security(unpickle=["10.77.0.0/24"])) as manager:
    own, raises = manager.compute(["own", "raises"], errors="return")
    trusted = [type(own).__name__, type(raises.error).__name__]
print(json.dumps([plain, trusted]))
""")
    plain, trusted = found
    assert plain[:3] == [[[0, 1, 2], [3, 4, 5]], {"a": [1, 2]}, True]
    assert "Own is no plain data" in plain[3] and "Security(unpickle=[...])" in plain[3]
    assert "decimal.Decimal is no plain data" in plain[4]
    assert plain[5:] == ["RemoteError", "LookupError: not there (worker ssh-1 on h2)", True]
    assert trusted == ["Own", "LookupError"]


def test_workers_are_recruited_at_stations_that_are_listed_or_found(farmer: Farmer, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    (mine, manager), (here, two), (there, three) = keys.make("manager"), keys.make("two"), keys.make("three")
    stranger, _ = keys.make("stranger")
    listed = tmp_path / "stations.toml"
    listed.write_text(f'[[station]]\naddress = "10.77.0.2:7100"\nkey = "{two}"\n[[station]]\nkey = "{three}"\n')
    pins = tmp_path / "pins"
    pins.write_text("0" * 64 + "\n")
    program = f"""
import socket
def where(x):
    time.sleep(0.002)
    return socket.gethostname(), os.getpid()

def names(workers, identity={str(mine)!r}, **options):
    with Manager(where, workers=workers, identity=identity, chunk=1, **options) as manager:
        manager.wait_for_workers()
        found = manager.compute(range(100))
        return sorted({{name for name, _ in found}}), sorted({{pid for _, pid in found}})

both = names(farm.stations(file={str(listed)!r}, slots=1), parallelism=2)
one = names(farm.stations("10.77.0.2:7100={two}"), parallelism=2)
refusals = []
for attempt in [
    lambda: names(farm.stations("10.77.0.2:7100={three}"), parallelism=1),
    lambda: names(farm.stations("10.77.0.2:7100={two}"), identity={str(stranger)!r}, parallelism=1),
    lambda: names(farm.stations("{manager}"), parallelism=1),
    lambda: farm.stations("10.77.0.2:7100=abc"),
]:
    try:
        attempt()
        refusals.append(None)
    except (farm.FarmError, ValueError) as error:
        refusals.append(str(error))
print(json.dumps([both, one, refusals]))
"""
    with station(farmer, "h2", "--identity", here, "--manager", manager) as first:
        with station(farmer, "h3", "--identity", there, "--manager", manager, "--announce", "--slots", "1"):
            both, one, refusals = farmer.run(program)
        assert both[0] == ["h2", "h3"] and one[0] == ["h2"] and len(one[1]) == 2
        other_key, unknown, nobody, malformed = refusals
        assert "the other end's key is neither pinned here" in other_key
        assert "starts no worker" in unknown
        assert "no station on this network answers" in nobody and "--announce" in nobody
        assert "no key hash of 64 hexadecimal digits" in malformed
        # The managers are gone: so are the workers.
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in one[1]):
            assert time.monotonic() < deadline, "a worker is left"
            time.sleep(0.1)
        assert first.poll() is None
    with station(farmer, "h2", "--identity", here, "--manager", manager, "--pinned", pins):
        found = farmer.run(f"""
def square(x): return x * x
workers = farm.stations("10.77.0.2:7100={two}")
with Manager(square, workers=workers, identity={str(mine)!r}, parallelism=1) as manager:
    print(json.dumps([outcomes(manager.compute([1], errors="return")), manager.hashes]))
""")
        (sentence,), hashes = found
        assert f"has the hash {hashes['square']}, which is not among those that this worker was pinned to" in sentence
        pins.write_text(hashes["square"] + "\n")
        again = farmer.run(f"""
def square(x): return x * x
workers = farm.stations("10.77.0.2:7100={two}")
import decimal, numpy
with Manager(square, workers=workers, identity={str(mine)!r}, parallelism=1) as manager:
    print(json.dumps([manager.compute([3]), manager.compute([numpy.arange(3.0)])[0].tolist(),
                      outcomes(manager.compute([decimal.Decimal(2)], errors="return"))]))
""")
        assert again[:2] == [[9], [0.0, 1.0, 4.0]]
        # What is unpickled is code, too.
        assert "decimal.Decimal is no plain data" in again[2][0] and "pinned to code" in again[2][0]


@contextlib.contextmanager
def walls(package: Package, gambeson: Path, folder: Path, *allowed: str) -> Iterator[Farmer]:
    """h1 and h2, which drop whoever connects to them, and h3 with a relay, where these keys may wait."""
    if not shutil.which("nft"):
        unavailable("there is no nft, by which a host drops what comes in: run tools/bootstrap.sh test as root")
    with hosts(folder, 3) as site, contextlib.ExitStack() as ends:
        no_newcomer = 'type filter hook input priority 0; iifname != "lo" tcp flags & (syn | ack) == syn drop'
        for closed in ("h1", "h2"):
            rules = f"table inet closed {{\nchain incoming {{\n{no_newcomer}\n}}\n}}"
            subprocess.run(["ip", "netns", "exec", site.namespace(closed), "nft", rules], check=True)
        listen = ["relay", "--listen", "10.77.0.3:7200", *(word for key in allowed for word in ("--allow", key))]
        relay = subprocess.Popen(site.command("h3", [str(gambeson), *listen]), stderr=subprocess.PIPE, text=True)
        ends.callback(relay.wait)
        ends.callback(relay.terminate)
        yield Farmer(site, package, gambeson, folder)


def test_hosts_that_let_nobody_in_meet_at_a_relay(package: Package, gambeson: Path, tmp_path: Path) -> None:
    mine, manager = Keys(tmp_path).make("manager")
    with walls(package, gambeson, tmp_path, manager) as farmer:
        program = f"""
def square(x): return x * x
options = dict(workers=ssh("h2"), parallelism=1, identity={str(mine)!r}, security=farm.Security(trusted=["10.0.0.0/8"]))
with Manager(square, relays=["10.77.0.3:7200"], **options) as manager:
    manager.wait_for_workers(timeout=30)
    print(json.dumps([manager.compute(range(10)), [line.data_rule for line in manager.explain().lines]]))
"""
        found, rules = farmer.run(program)
        assert found == [x * x for x in range(10)]
        # A relay is a stranger: what goes through it is sealed, trusted networks or not.
        assert rules == ["the policy seals what goes there"]
        without = farmer.call(program.replace('relays=["10.77.0.3:7200"], ', "").replace("timeout=30", "timeout=5"))
        assert without.status != 0, "the hosts are not closed"


def test_a_station_that_lets_nobody_in_waits_at_a_relay(package: Package, gambeson: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    (mine, manager), (theirs, node), (_, other) = keys.make("manager"), keys.make("node"), keys.make("other")
    listed = tmp_path / "stations.toml"
    listed.write_text(f'[[station]]\nrelay = "10.77.0.3:7200"\nkey = "{node}"\n')
    options: list[str | Path] = ["--identity", theirs, "--manager", manager, "--relay", "10.77.0.3:7200"]
    with walls(package, gambeson, tmp_path, manager, node) as farmer, station(farmer, "h2", *options):
        found = farmer.run(f"""
import socket
def where(x): return socket.gethostname(), x

options = dict(parallelism=1, relays=["10.77.0.3:7200"], identity={str(mine)!r})
security = farm.Security(trusted=["10.0.0.0/8"], clearance={{"{node}": ["own"]}}, unpickle=["{node}"])
found = []
for workers in farm.stations("10.77.0.3:7200/{node}"), farm.stations(file={str(listed)!r}):
    with Manager(where, workers=workers, security=security, **options) as manager:
        manager.wait_for_workers(timeout=30)
        found.append(manager.compute([farm.labelled(1, "own"), 2]))
        found.append([[line.host, line.data_rule, line.results] for line in manager.explain().lines])
for workers in farm.stations("10.77.0.3:7200/{other}"), farm.stations("10.77.0.2:7100={node}"):
    try:
        with Manager(where, workers=workers, **options) as manager:
            manager.wait_for_workers(timeout=5)
        found.append(None)
    except farm.FarmError as error:
        found.append(str(error))
print(json.dumps(found))
""")
    line = [node, "the policy seals what goes there", "pickle"]
    assert found[:4] == [[["h2", 1], ["h2", 2]], [line]] * 2
    # One that does not wait there; and the host lets nobody in, indeed.
    assert "starts no worker" in found[4] or "workers are there" in found[4], found[4]
    assert "0 of 1 workers are there" in found[5], found[5]


def test_workers_that_are_cut_off_are_replaced(farmer: Farmer, site: Hosts) -> None:
    job = farmer.call(f"""
import subprocess, threading
def work(x):
    time.sleep(0.01)
    return x
def cut():
    time.sleep(0.7)
    subprocess.run(["ip", "-n", {site.switch!r}, "link", "set", "to-h3", "down"], check=True)
with Manager(work, parallelism=2, workers=[ssh("h2", "h3"), farm.local()], silence=1.0, chunk=1) as manager:
    manager.wait_for_workers()
    threading.Thread(target=cut).start()
    results = manager.compute(range(1000))
    print(json.dumps([results == list(range(1000)), manager.stats().recovered]))
""")
    subprocess.run(["ip", "-n", site.switch, "link", "set", "to-h3", "up"], check=True)
    assert job.status == 0, job.describe()
    done, recovered = json.loads(job.stdout)
    assert done and recovered >= 1
    assert "worker ssh-2 on h3 is lost" in job.stderr, job.describe()


@pytest.mark.mpis("mpich", "openmpi", "intel")
def test_an_mpis_launcher_starts_workers(package: Package, tmp_path: Path, mpi: Mpi) -> None:
    options = ["--allow-run-as-root", "--oversubscribe"] if mpi.name == "openmpi" else []
    found = package.run(
        f"""
import json, os
from gambeson import farm
def square(x): return x * x
workers = farm.mpi(*{options!r}, mpiexec={str(mpi.bin / "mpiexec")!r})
with farm.Manager(square, parallelism=2, workers=workers) as manager:
    manager.wait_for_workers()
    print(json.dumps([manager.compute(range(10)), len(manager.stats().workers)]))
""",
        tmp_path,
    )
    assert found == [[x * x for x in range(10)], 2]


def test_slurm_starts_workers(package: Package, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import json, os
from gambeson import farm
def where(x): return os.environ["SLURMD_NODENAME"]
with farm.Manager(where, parallelism=2, workers=farm.slurm("--mem=0"), chunk=1) as manager:
    manager.wait_for_workers()
    print(json.dumps([len(manager.compute(range(10))), len(manager.stats().workers)]))
""")
    try:
        with slurm(tmp_path_factory.mktemp("slurm"), nodes=1) as cluster:
            env = {"PYTHONPATH": str(package.folder)}
            job = cluster.run([str(package.python), program], env=env, timeout=90)
    except Unavailable as reason:
        unavailable(str(reason))
        raise
    assert job.status == 0, job.describe()
    assert json.loads(job.stdout) == [10, 2]
