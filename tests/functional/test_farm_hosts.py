"""gambeson.farm with workers on other hosts, of which not all are trusted, and one of which lies."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import unavailable
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID
from harness.farms import Farmer
from harness.hosts import Hosts, hosts
from harness.mpis import Mpi, Unavailable
from harness.python import Package
from harness.slurm import slurm

pytestmark = [pytest.mark.namespaces]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """h1, where managers run, and h2 and h3."""
    with hosts(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


@pytest.fixture
def farmer(site: Hosts, package: Package, gambeson: Path, tmp_path: Path) -> Farmer:
    return Farmer(site, package, gambeson, tmp_path)


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


# A worker that its administrator has altered. What it may do it does: falsify its own results.
LIAR = """
import os, pickle, struct, sys
from gambeson.farm import _plain, worker, _protocol

class Bomb:
    def __reduce__(self):
        return os.system, ("touch " + {marker!r},)

mode = {mode!r}
honest = worker.Interpreter._answer

def answer(self, results, failures):
    if mode == "pickle":
        return [pickle.dumps([Bomb()] * len(results))], 0
    if mode == "failure":
        bomb = ["boom", "boom", pickle.dumps(Bomb())]
        return [_plain.dump({{0: bomb}})[0], *_plain.dump(results)], _protocol.SOME_FAILED
    if mode == "count":
        return _plain.dump(results + [1]), 0
    if mode == "garbage":
        return [os.urandom(100), os.urandom(1000)], 0
    if mode == "others":
        for number in set(range(1, max(mine))) - mine:
            self._sealed.post(_protocol.ToManager.RESULT, number, 0, _plain.dump(["stolen"]))
        return honest(self, results, failures)
    if mode == "hello":
        self._sealed.post(_protocol.ToManager.HELLO, 0, 0, [b"junk"])
    if mode == "empty":
        self._sealed.post(_protocol.ToManager.RESULT, max(mine), _protocol.NOT_LOADED, [])
        return [b""], _protocol.SOME_FAILED
    if mode == "object array":
        return [bytes.fromhex("91c708069493a27c4fa091019101c201"), pickle.dumps(Bomb())], 0
    if mode == "subtle" and mine and max(mine) % 3 == 0:
        return _plain.dump([result + 1 for result in results]), 0
    return honest(self, results, failures)

mine = set()
compute = worker.Interpreter._compute

def recorded(self, number, word, parts):
    mine.add(number)
    return compute(self, number, word, parts)

worker.Interpreter._compute = recorded
worker.Interpreter._answer = answer
sys.exit(worker.main([]))
"""


@pytest.mark.parametrize("mode", ["pickle", "failure", "count", "garbage", "others", "object array", "hello", "empty"])
def test_a_malicious_worker_runs_nothing_in_the_manager_and_falsifies_its_own_tasks_alone(
    farmer: Farmer, tmp_path: Path, mode: str
) -> None:
    marker = tmp_path / "ran"
    liar = tmp_path / "liar.py"
    liar.write_text(LIAR.format(marker=str(marker), mode=mode))
    job = farmer.call(f"""
def square(x):
    time.sleep(0.002)
    return x * x
workers = [ssh("h3", worker=[{str(liar)!r}]), ssh("h2")]
with Manager(square, parallelism=2, workers=workers, chunk=1) as manager:
    manager.wait_for_workers()
    results = manager.compute(range(100), errors="return")
    print(json.dumps([outcomes(results), [worker.host for worker in manager.stats().workers]]))
""")
    assert job.status == 0, job.describe()
    found, left = json.loads(job.stdout)
    assert not marker.exists(), "the manager ran what the worker sent"
    if mode == "failure":
        wrong = [at for at, one in enumerate(found) if one != at * at]
        assert wrong and all(found[at] == "boom (worker ssh-1 on h3)" for at in wrong)
        assert len(wrong) < 100
    elif mode == "empty":
        assert all(one in (at * at, "the stage cannot be loaded (worker ssh-1 on h3)") for at, one in enumerate(found))
    else:
        assert found == [at * at for at in range(100)]
    if mode not in ("failure", "others", "hello", "empty"):
        assert "it sent what is no result" in job.stderr
    if mode == "hello":
        assert "it does not say who it is as a worker does" in job.stderr
    assert "h2" in left


def test_a_worker_whose_results_others_do_not_get_is_expelled(farmer: Farmer, tmp_path: Path) -> None:
    liar = tmp_path / "liar.py"
    liar.write_text(LIAR.format(marker="", mode="subtle"))
    job = farmer.call(f"""
def square(x):
    time.sleep(0.001)
    return x * x
found = []
for others, share in [([ssh("h2"), ssh("h1")], 0.2), ([farm.local()], 0.2), ([ssh("h2")], 1.0)]:
    workers = [ssh("h3", worker=[{str(liar)!r}]), *others]
    with Manager(square, parallelism=1 + len(others), workers=workers, chunk=1, verify=share) as manager:
        manager.wait_for_workers()
        results = outcomes(manager.compute(range(400), errors="return"))
        wrong = [at for at, result in enumerate(results) if result != at * at]
        stats = manager.stats()
        found.append([len(wrong), stats.verified, sorted({{worker.host for worker in stats.workers}}),
                      [results[at] for at in wrong if isinstance(results[at], str)][:1]])
print(json.dumps(found))
""")
    assert job.status == 0, job.describe()
    three, trusted, two = json.loads(job.stdout)
    for wrong, verified, left, _ in (three, trusted):
        # What it had falsified before it was looked at.
        assert wrong < 100 and verified
        assert "h3" not in left, left
    assert job.stderr.count("worker ssh-1 on h3 is lost: it gave another result of stage 'square' than others did") == 2
    # Of two that differ nobody can say who is right: neither result is given out.
    wrong, _, left, sentences = two
    assert wrong and "gave different results of stage 'square'" in sentences[0]


class Keys:
    """Identities as files, and their hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str) -> tuple[Path, str]:
        key = Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        path = self.folder / f"{name}.pem"
        path.touch(mode=0o600)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(builder.sign(key, None).public_bytes(Encoding.PEM) + private)
        return path, hashlib.sha256(public).hexdigest()


@contextlib.contextmanager
def station(farmer: Farmer, host: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A station that runs on a host."""
    words = [farmer.gambeson, "station", "--python", farmer.package.python, *arguments]
    command = [str(word) for word in words]
    made = subprocess.Popen(
        farmer.site.command(host, command), env=farmer.package.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert made.stdout is not None
        assert made.stdout.readline().startswith("station ")
        yield made
    finally:
        made.terminate()
        made.communicate(timeout=10)


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


def test_hosts_that_let_nobody_in_meet_at_a_relay(
    package: Package, gambeson: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not shutil.which("nft"):
        unavailable("there is no nft, by which a host drops what comes in: run tools/bootstrap.sh test as root")
    mine, manager = Keys(tmp_path).make("manager")
    with hosts(tmp_path_factory.mktemp("walls"), 3) as site, contextlib.ExitStack() as ends:
        farmer = Farmer(site, package, gambeson, tmp_path)
        no_newcomer = 'type filter hook input priority 0; iifname != "lo" tcp flags & (syn | ack) == syn drop'
        for closed in ("h1", "h2"):
            rules = f"table inet closed {{\nchain incoming {{\n{no_newcomer}\n}}\n}}"
            subprocess.run(["ip", "netns", "exec", site.namespace(closed), "nft", rules], check=True)
        listen = ["relay", "--listen", "10.77.0.3:7200", "--allow", manager]
        relay = subprocess.Popen(site.command("h3", [str(gambeson), *listen]), stderr=subprocess.PIPE, text=True)
        ends.callback(relay.wait)
        ends.callback(relay.terminate)
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


def test_nobody_but_invited_workers_gets_in(farmer: Farmer, tmp_path: Path) -> None:
    found = farmer.run("""
import socket
from gambeson import link
def same(x): return x
with Manager(same, parallelism=1, workers=ssh("h2")) as manager:
    manager.wait_for_workers()
    address = manager._domain.listening[0]
    host, _, port = address.rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(os.urandom(100))
    stranger = link.Domain(link.Identity.generate(), link.Trust().pinned(manager._key, "manager"), shm=False)
    control = next(iter(manager._pool.controls.values()))
    # Even with the startpoint that the worker has.
    stolen = bytes(control.endpoint.startpoint([]).encode())
    try:
        stranger.startpoint(stolen, 5)
        refused = None
    except link.Error as error:
        refused = type(error).__name__
    print(json.dumps([refused, manager.compute(range(5)), manager._domain.refusals().connections > 0]))
""")
    assert found == ["Refused", [0, 1, 2, 3, 4], True] or found == ["Lost", [0, 1, 2, 3, 4], True]


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


BETWEEN = """
import random, socket, sys, threading
mode, seen = sys.argv[1], open(sys.argv[2], "ab", buffering=0)
left, random = 6, random.Random(7)
served = socket.create_server(("10.77.0.3", 7300))
print("ready", flush=True)

def forward(source, sink):
    # Handshakes go through; an attack there ends with no session at all.
    global left
    moved = 0
    while chunk := source.recv(1 << 16):
        seen.write(chunk)
        moved += len(chunk)
        if moved > 6000 and left and random.random() < 0.2:
            left -= 1
            print("meddled", flush=True)
            at = random.randrange(len(chunk))
            chunk = {
                "alter": lambda: chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1:],
                "replay": lambda: chunk + chunk,
                "leave out": lambda: chunk[:at] + chunk[at + 1:],
                "inject": lambda: chunk + random.randbytes(200),
            }[mode]()
        try:
            sink.sendall(chunk)
        except OSError:
            break
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

while True:
    taken, _ = served.accept()
    out = socket.create_connection(("10.77.0.1", 7000))
    for ends in ((taken, out), (out, taken)):
        threading.Thread(target=forward, args=ends, daemon=True).start()
"""


@pytest.mark.parametrize("mode", ["alter", "replay", "leave out", "inject"])
def test_a_man_in_the_middle_changes_nothing(
    package: Package, gambeson: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    """What h2 says to the manager goes by way of h3, which reads it and does something to it."""
    if not shutil.which("nft"):
        unavailable("there is no nft, by which connections are led elsewhere: run tools/bootstrap.sh test as root")
    seen = tmp_path / "seen"
    script = tmp_path / "between.py"
    script.write_text(BETWEEN)
    with hosts(tmp_path_factory.mktemp("between"), 3) as site, contextlib.ExitStack() as ends:
        farmer = Farmer(site, package, gambeson, tmp_path)
        led = "type nat hook output priority -100; ip daddr 10.77.0.1 tcp dport 7000 dnat to 10.77.0.3:7300"
        rules = f"table ip led {{\nchain out {{\n{led}\n}}\n}}"
        subprocess.run(["ip", "netns", "exec", site.namespace("h2"), "nft", rules], check=True)
        command = [str(package.python), str(script), mode, str(seen)]
        between = subprocess.Popen(site.command("h3", command), stdout=subprocess.PIPE, text=True)
        ends.callback(between.wait)
        ends.callback(between.kill)
        assert between.stdout is not None and between.stdout.readline() == "ready\n"
        found = farmer.run("""
def work(text):
    time.sleep(0.002)
    return text.lower() + "-RESULT-CANARY"
texts = ["ITEM-CANARY-%06d" % at for at in range(600)]
with Manager(work, parallelism=1, workers=ssh("h2"), listen="10.77.0.1:7000") as manager:
    results = manager.compute(texts)
    print(json.dumps([results == [text.lower() + "-RESULT-CANARY" for text in texts], manager.stats().record()]))
""")
        between.kill()
        assert "meddled" in between.stdout.read()
    assert found[0], found
    said = seen.read_bytes()
    assert len(said) > 20_000, "it was not in the middle"
    for word in (b"ITEM-CANARY", b"RESULT-CANARY", b"item-canary", b"cloudpickle"):
        assert word not in said
