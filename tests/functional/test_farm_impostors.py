"""A farm on several hosts, when somebody takes the place of a worker that is gone, and when one comes back."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import unavailable
from harness.farms import Farmer, Keys
from harness.hosts import Hosts, hosts
from harness.python import Package

pytestmark = [pytest.mark.namespaces]

# A worker that leaves behind what it knew, its key, too; the next one waits as long as a file is there.
CARELESS = """
import os, sys, time
from pathlib import Path
from gambeson.farm import worker
from gambeson.link import Identity

folder = Path({folder!r})
while (folder / "blocked").exists():
    time.sleep(0.05)
if not (folder / "left").exists():
    pem = (folder / "worker.pem").read_bytes()
    worker.Identity.generate = lambda: Identity.from_pem(pem, pem)
    decode = worker.Invitation.decode

    def kept(line):
        (folder / "left").write_text(line)
        return decode(line)

    worker.Invitation.decode = kept
sys.exit(worker.main([]))
"""

# On h3: forwards what h2 says to the manager, keeps it, and ends each connection once, so that it is taken up again.
RECORDER = """
import socket, sys, threading, time
from pathlib import Path

folder = Path(sys.argv[1])
served = socket.create_server(("10.77.0.3", 7300))
print("ready", flush=True)

def forward(source, sink, name):
    with open(folder / name, "ab", buffering=0) as kept:
        moved = 0
        try:
            while chunk := source.recv(1 << 16):
                kept.write(chunk)
                sink.sendall(chunk)
                moved += len(chunk)
                if name == "said-0" and moved > 15_000:
                    break
        except OSError:
            pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

count = 0
while True:
    taken, _ = served.accept()
    out = socket.create_connection(("10.77.0.1", 7000))
    (folder / f"port-{count}").write_text(str(out.getsockname()[1]))
    for source, sink, what in ((taken, out, "said"), (out, taken, "heard")):
        threading.Thread(target=forward, args=(source, sink, f"{what}-{count}"), daemon=True).start()
    count += 1
"""

# On h3, whose address the manager took for the worker's: everything that is left of that is tried.
IMPOSTOR = """
import json, socket, sys
from pathlib import Path
from gambeson import link

folder, found, answers = Path(sys.argv[1]), {}, b""
for said in sorted(folder.glob("said-*")):
    with socket.socket() as replay:
        replay.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            replay.bind(("10.77.0.3", int((folder / said.name.replace("said", "port")).read_text())))
            replay.connect(("10.77.0.1", 7000))
        except OSError:
            # The network still has the port for the connection that was.
            replay.close()
            replay = socket.create_connection(("10.77.0.1", 7000))
        replay.settimeout(2)
        try:
            replay.sendall(said.read_bytes())
            while chunk := replay.recv(1 << 16):
                answers += chunk
        except OSError:
            pass
        replay.close()
found["replayed"] = len(list(folder.glob("said-*")))
found["told"] = b"ITEM-CANARY" in answers

left = json.loads((folder / "left").read_text())
pem = (folder / "worker.pem").read_bytes()
for name, identity in (("another key", link.Identity.generate()), ("its very key", link.Identity.from_pem(pem, pem))):
    trust = link.Trust().pinned(bytes.fromhex(left["manager"]), "the manager", ["manager"])
    domain = link.Domain(identity, trust, shm=False, patience=5.0, address="10.77.0.3")
    try:
        domain.startpoint(bytes.fromhex(left["startpoint"]), 5)
        found[name] = None
    except link.Error as error:
        found[name] = type(error).__name__
    domain.close()
print(json.dumps(found))
"""


def test_who_takes_the_place_of_a_worker_that_died_gets_no_task(
    package: Package, gambeson: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not shutil.which("nft"):
        unavailable("there is no nft, by which connections are led elsewhere: run tools/bootstrap.sh test as root")
    for name, text in (("careless", CARELESS), ("recorder", RECORDER), ("impostor", IMPOSTOR)):
        (tmp_path / f"{name}.py").write_text(text.replace("{folder!r}", repr(str(tmp_path))))
    Keys(tmp_path).make("worker")
    with hosts(tmp_path_factory.mktemp("places"), 3) as site, contextlib.ExitStack() as ends:
        farmer = Farmer(site, package, gambeson, tmp_path)
        led = "type nat hook output priority -100; ip daddr 10.77.0.1 tcp dport 7000 dnat to 10.77.0.3:7300"
        rules = f"table ip led {{\nchain out {{\n{led}\n}}\n}}"
        subprocess.run(["ip", "netns", "exec", site.namespace("h2"), "nft", rules], check=True)
        command = [str(package.python), str(tmp_path / "recorder.py"), str(tmp_path)]
        between = subprocess.Popen(site.command("h3", command), stdout=subprocess.PIPE, text=True)
        ends.callback(between.wait)
        ends.callback(between.kill)
        assert between.stdout is not None and between.stdout.readline() == "ready\n"
        found = farmer.run(f"""
import itertools, signal, subprocess
FILES = {str(tmp_path)!r}

def work(text):
    time.sleep(0.002)
    return text.lower(), os.getpid()

texts = ["ITEM-CANARY-%06d" % at for at in range(400)]
impostor = " ".join(["env", "PYTHONPATH=" + FOLDER, sys.executable, FILES + "/impostor.py", FILES])
options = dict(listen="10.77.0.1:7000", security=farm.Security(trusted=["10.77.0.0/24"]), chunk=1)
with Manager(work, parallelism=1, workers=ssh("h2", worker=[FILES + "/careless.py"]), **options) as manager:
    results = manager.run(texts)
    before = list(itertools.islice(results, 200))
    first, = [worker.pid for worker in manager.stats().workers]
    open(FILES + "/blocked", "w").close()
    os.kill(first, signal.SIGKILL)
    until = time.monotonic() + 20
    while manager.stats().workers and time.monotonic() < until:
        time.sleep(0.01)
    done = subprocess.run([AGENT, "h3", impostor], capture_output=True, text=True)
    waits = manager.stats()
    os.remove(FILES + "/blocked")
    after = list(results)
    by = [pid for _, pid in before + after]
    print(json.dumps([
        done.stdout, done.stderr, waits.record(), [text for text, _ in before + after] == [t.lower() for t in texts],
        first in by[:200], len(set(by)), [worker.tasks for worker in manager.stats().workers],
    ]))
""")
    out, err, waits, right, had, pids, tasks = found
    assert out, err
    tried = json.loads(out)
    assert tried.pop("replayed") >= 2, "the connection was not taken up again"
    assert tried == {"told": False, "another key": "Refused", "its very key": "Refused"}
    # There was somebody to be, and something to be had.
    assert b"ITEM-CANARY" in (tmp_path / "heard-0").read_bytes()
    assert waits["workers"] == [] and waits["waiting"] > 0
    # The rest was computed by the next worker that the manager started.
    assert right and had and pids == 2 and len(tasks) == 1 and 200 <= tasks[0] <= 400 - 150


# A worker that its manager's host cannot end: what would have told it is cut off, too.
APART = """
import os, sys, time
from gambeson.farm import worker

if os.fork():
    os.wait()
    sys.exit(0)
worker._follow = lambda: time.sleep(1e6)
sys.exit(worker.main([]))
"""


def test_a_worker_that_comes_back_delivers_nothing_twice(farmer: Farmer, site: Hosts, tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(APART)
    job = farmer.call(f"""
import socket, subprocess, threading
FILES = {str(tmp_path)!r}

def work(x):
    time.sleep(0.002)
    if x >= 50 and socket.gethostname() == "h3" and not os.path.exists(FILES + "/begun"):
        # In the midst of this one the network goes.
        with open(FILES + "/begun", "w") as begun:
            begun.write(str(os.getpid()))
        until = time.monotonic() + 40
        while not os.path.exists(FILES + "/back") and time.monotonic() < until:
            time.sleep(0.01)
        with open(FILES + "/computed", "w") as computed:
            computed.write(str(x))
        return x, "late"
    return x, socket.gethostname()

def switch(state):
    subprocess.run(["ip", "-n", {site.switch!r}, "link", "set", "to-h3", state], check=True)

def wait(holds):
    until = time.monotonic() + 30
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()

def part(manager):
    assert wait(lambda: os.path.exists(FILES + "/begun") and os.path.getsize(FILES + "/begun"))
    pid = int(open(FILES + "/begun").read())
    switch("down")
    gone = wait(lambda: "h3" not in [worker.host for worker in manager.stats().workers])
    lives = os.path.exists(f"/proc/{{pid}}")
    switch("up")
    open(FILES + "/back", "w").close()
    computed = wait(lambda: os.path.exists(FILES + "/computed"))
    seen.extend([gone, lives, computed, wait(lambda: not os.path.exists(f"/proc/{{pid}}"))])
    over.set()

def items():
    yield from range(200)
    # The stream goes on when the late result has come, if it comes.
    over.wait(60)
    yield from range(200, 400)

seen, over = [], threading.Event()
workers = [ssh("h3", worker=[FILES + "/apart.py"]), ssh("h2")]
with Manager(work, parallelism=2, workers=workers, silence=1.0, chunk=1) as manager:
    manager.wait_for_workers()
    threading.Thread(target=part, args=(manager,), daemon=True).start()
    results = list(manager.run(items()))
    late = int(open(FILES + "/computed").read())
    print(json.dumps([seen, [x for x, _ in results] == list(range(400)), dict(results)[late],
                      manager.stats().recovered]))
""")
    subprocess.run(["ip", "-n", site.switch, "link", "set", "to-h3", "up"], check=True)
    assert job.status == 0, job.describe()
    seen, right, late, recovered = json.loads(job.stdout)
    # It was lost while it lived, computed its task when it was back, and ended by itself.
    assert seen == [True] * 4, job.describe()
    assert right and late in ("h2", "h3") and recovered >= 1
