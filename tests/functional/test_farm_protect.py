"""Another `Security` while a farm runs: what is on the wire, who gets what, and that no result is lost or doubled."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.farms import HEAD, Farmer
from harness.python import Package

RULES = (
    HEAD
    + """
import functools, pathlib, random, urllib.request
from concurrent import futures
from gambeson import Executor

# What is on this host goes over its memory, where there is nothing to trust.
Manager = functools.partial(farm.Manager, shm=False)
SEALED, CLEAR = farm.Security(), farm.Security(trusted=["127.0.0.0/8"])
INSECURE = farm.Security(trusted=["127.0.0.0/8"], insecure_hosts=["local-1"])

def pids(manager): return {worker.name: worker.pid for worker in manager.stats().workers}
def until(reached):
    while not reached(): time.sleep(0.005)
"""
)


def packets(trace: Path) -> Iterator[tuple[str, bytes]]:
    """Of each packet of IPv4 the other end, as h1 sees it, and what is in it."""
    data, at = trace.read_bytes(), 24
    while at < len(data):
        (length,) = struct.unpack_from("<8xI", data, at)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        if frame[12:14] == b"\x08\x00":
            ends = {".".join(map(str, frame[from_ : from_ + 4])) for from_ in (26, 30)}
            yield f"h{next(iter(ends - {'10.77.0.1'}))[-1]}", frame[34:]


WIRE = """
import socket, threading
network = ["10.77.0.0/24"]
clear, changes, done = farm.Security(trusted=network), [], []

def work(item):
    time.sleep(0.004)
    return item.swapcase()

def items():
    # Short ones are sealed where they are sent, long ones by threads that have more of them waiting.
    at = 0
    while not done:
        yield (b"ITEM-CANARY-%06d " % at) * (60_000 if at % 64 == 0 else 50)
        at += 1

mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def marked(word): mark.sendto(word, ("10.77.0.2", 9))

with Manager(work, parallelism=2, workers=ssh("h2", "h3"), security=clear, chunk=1) as manager:
    manager.wait_for_workers()
    pids = [worker.pid for worker in manager.stats().workers]
    def change():
        for at in range(4):
            time.sleep(0.3)
            began = time.monotonic()
            manager.protect(strict)
            changes.append(time.monotonic() - began)
            marked(b"NOW-SEALED")
            time.sleep(0.3)
            rules = {line.host: [line.code, line.data, line.data_rule] for line in manager.explain().lines}
            marked(b"NOW-CLEAR")
            manager.protect(clear)
        done.append(rules)
    thread = threading.Thread(target=change)
    thread.start()
    wanted, wrong, count = itertools.tee(items()), 0, 0
    for item, result in zip(wanted[0], manager.run(wanted[1])):
        wrong += result != item.swapcase()
        count += 1
    thread.join()
    print(json.dumps([wrong, count, changes, done[0], pids == [worker.pid for worker in manager.stats().workers]]))
"""


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("strict", "sealed"),
    [("farm.Security()", {"h2", "h3"}), ('farm.Security(trusted=network, insecure_hosts=["h2"])', {"h2"})],
    ids=["nothing is trusted any more", "an insecure host"],
)
def test_what_is_to_be_sealed_is_so_when_the_call_returns(
    farmer: Farmer, tmp_path: Path, strict: str, sealed: set[str]
) -> None:
    trace = tmp_path / "trace.pcap"
    with farmer.capture(trace):
        wrong, count, changes, rules, same = farmer.run(
            "import itertools\n" + WIRE.replace("protect(strict)", f"protect({strict})")
        )
    assert (wrong, same) == (0, True) and count > 100, "the stream went on, with the same workers"
    assert max(changes) < 2
    for host in ("h2", "h3"):
        expected = "sealed" if host in sealed else "authenticated"
        assert rules[host][:2] == [expected, expected]
        if len(sealed) == 1:
            assert rules[host][2].startswith("h2 is an insecure host" if host == "h2" else "the policy trusts")
    seen: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    marks, now = [], False
    for host, payload in packets(trace):
        for mark in (b"NOW-SEALED", b"NOW-CLEAR"):
            # Whoever gets one may send it back as an error.
            if payload[8:] == mark:
                now = mark == b"NOW-SEALED"
                marks.append(now)
        seen[now][host] += payload.count(b"CANARY-0") + payload.count(b"canary-0")
    trace.unlink()
    assert marks == [True, False] * 4
    for host in ("h2", "h3"):
        assert seen[False][host] > 1000, "nothing could be read before"
        assert (seen[True][host] == 0) == (host in sealed), seen


@pytest.mark.namespaces
def test_results_are_unpickled_from_who_is_trusted_now(farmer: Farmer, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    found = farmer.run(f"""
import threading
MARKER, BEGUN, GO = {str(marker)!r}, {str(tmp_path / "begun")!r}, {str(tmp_path / "go")!r}
class Own: pass
class Bomb:
    def __reduce__(self): return os.system, ("touch " + MARKER,)
def gives(kind):
    if kind == "own": return Own()
    open(BEGUN, "a").write(".")
    while not os.path.exists(GO): time.sleep(0.01)
    return Bomb()
def name(results): return [str(r.error) if isinstance(r, farm.Failure) else type(r).__name__ for r in results]

trusting = farm.Security(unpickle=["h2"])
with Manager(gives, parallelism=1, workers=ssh("h2")) as manager:
    rounds = [name(manager.compute(["own"], errors="return"))]
    manager.protect(trusting)
    rounds.append([*name(manager.compute(["own"], errors="return")), manager.explain().lines[0].results])
    slow = []
    thread = threading.Thread(target=lambda: slow.extend(name(manager.compute(["slow"], errors="return"))))
    thread.start()
    while not os.path.exists(BEGUN): time.sleep(0.01)
    manager.protect(farm.Security())
    open(GO, "w").close()
    thread.join()
    rounds += [slow, [open(BEGUN).read()], name(manager.compute(["own"], errors="return"))]
    print(json.dumps([rounds, len(manager.stats().workers), manager.stats().workers[0].name]))
""")
    (plain, trusted, slow, begun, again), count, worker = found
    assert "Own is no plain data" in plain[0] and "Own is no plain data" in again[0]
    assert trusted == ["Own", "pickle"]
    assert "Bomb is no plain data" in slow[0] and begun == [".."], "it was asked for anew, as data"
    assert not marker.exists(), "what came from a worker that is not trusted any more ran here"
    assert (count, worker) == (1, "ssh-1"), "the worker stays"


def test_clearance_that_changes_takes_tasks_back_and_judges_what_waits(package: Package, tmp_path: Path) -> None:
    found = package.run(
        RULES
        + f"""
BEGUN = {str(tmp_path / "begun")!r}
def cleared(*names): return farm.Security(clearance={{name: ["patients"] for name in names}})
def where(item):
    if item == "slow" and not os.path.exists(BEGUN):
        open(BEGUN, "w").close()
        for _ in range(3000): time.sleep(0.01)
    time.sleep(0.002)
    return os.getpid()
def said(results): return [str(r.error) if isinstance(r, farm.Failure) else r for r in results]

with Manager(where, parallelism=2, security=cleared("local-1"), patience=30, chunk=1) as manager:
    manager.wait_for_workers()
    names = {{pid: name for name, pid in pids(manager).items()}}
    items = [farm.labelled(item, "patients") for item in ["slow", *range(20)]]
    got, late = [], []
    def compute(into, what): into.extend(said(manager.compute(what, errors="return")))
    stream = threading.Thread(target=compute, args=(got, items))
    stream.start()
    until(lambda: os.path.exists(BEGUN))
    began = time.monotonic()
    manager.protect(cleared("local-2"))
    never = [line.worker for line in manager.explain().lines if line.data == "never"]
    stream.join()
    took = time.monotonic() - began
    waiting = threading.Thread(target=compute, args=(late, items))
    manager.protect(cleared("elsewhere"))
    waiting.start()
    time.sleep(0.5)
    before, waited = len(late), manager.stats().waiting
    manager.protect(cleared("local-1", "local-2"))
    waiting.join(10)
    kept = {{pid: name for name, pid in pids(manager).items()}} == names
    manager.protect(cleared("elsewhere"))
    manager._patience = 0.3
    nobody = said(manager.compute(items[:1], errors="return"))
    print(json.dumps([[names.get(pid, pid) for pid in got], took, never, before, waited,
        sorted({{names.get(pid, pid) for pid in late}}), len(late), kept, nobody]))
""",
        tmp_path,
    )
    got, took, _, before, waited, late, count, kept, nobody = found
    assert got == ["local-2"] * 21 and took < 10
    assert before == 0 and waited > 0, "nobody was to see it"
    assert late == ["local-1", "local-2"] and count == 21
    assert kept, "a worker that leaves its task off stays"
    assert "data labelled patients, which no worker may see; it waited 0.3 s for one on elsewhere" in nobody[0]


def test_it_is_called_from_anywhere_and_everybody_is_told(package: Package, tmp_path: Path) -> None:
    found = package.run(
        RULES
        + """
def sealed(manager): return [worker.sealed for worker in manager.stats().workers]
def rules(manager): return sorted({(line.data, line.data_rule) for line in manager.explain().lines})
def refused(call):
    try: call()
    except Exception as error: return f"{type(error).__name__}: {error}"

with Manager(square, parallelism=2, security=CLEAR) as manager:
    # No worker is there yet: those that come follow it, whatever they were invited with.
    manager.protect(SEALED)
    manager.wait_for_workers()
    first = manager.compute(range(50)), sealed(manager), rules(manager)
    workers = pids(manager)
    page = manager.page()
    manager.protect(CLEAR)
    until(lambda: rules(manager)[0][0] == "authenticated")
    clear = manager.compute(range(50)), rules(manager)
    stream = manager.run(range(2000))
    some = [next(stream) for _ in range(10)]
    threads = [threading.Thread(target=manager.protect, args=(one,)) for one in (CLEAR, SEALED, CLEAR, INSECURE) * 5]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    manager.protect(SEALED)
    manager.protect(SEALED)
    with urllib.request.urlopen(page.address + "/stats?token=" + page.token) as answer:
        shown = sorted({line["data_rule"] for line in json.load(answer)["protection"]})
    some += stream
    wrong = [refused(lambda: manager.protect(other)) for other in (None, "privacy", {"trusted": []})]
    held = manager.security is SEALED
    same = pids(manager) == workers
over = refused(lambda: manager.protect(CLEAR))

with Executor(2, security=CLEAR, shm=False) as executor:
    told = futures.Future()
    def change(_):
        # In the thread that workers' answers wait for.
        began = time.monotonic()
        executor.protect(SEALED)
        told.set_result(time.monotonic() - began)
    executor.submit(square, 3).add_done_callback(change)
    took = told.result(20)
    after = executor.submit(square, 4).result(), rules(executor.farm)
print(json.dumps([first, clear, some == [x * x for x in range(2000)], shown, wrong, held, same, over, took, after]))
""",
        tmp_path,
    )
    first, clear, right, shown, wrong, held, same, over, took, after = found
    trusted = "the policy trusts the network between: authenticated, not encrypted"
    everything = "the policy seals what goes there"
    assert first[0] == clear[0] == [x * x for x in range(50)]
    assert sum(first[1]) > 0 and first[2] == [["sealed", everything]] and clear[1] == [["authenticated", trusted]]
    assert right and shown == [everything] and held and same
    assert wrong == [
        f"TypeError: a farm is protected as a farm.Security says, and not {kind}"
        for kind in ("NoneType", "str", "dict")
    ]
    assert over == "FarmError: this farm was closed"
    assert took < 5 and after == [16, [["sealed", everything]]]


def test_a_worker_that_does_not_answer_is_replaced(package: Package, tmp_path: Path) -> None:
    found = package.run(
        RULES
        + """
def slow(x):
    time.sleep(0.002)
    return x
with Manager(slow, parallelism=2, security=CLEAR, silence=1.0) as manager:
    manager.wait_for_workers()
    stream = manager.run(range(1000))
    results = [next(stream) for _ in range(20)]
    stopped = pids(manager)["local-1"]
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: all(open(path / "stat").read().rpartition(") ")[2][0] == "T" for path in
                      pathlib.Path(f"/proc/{stopped}/task").iterdir()))
    began = time.monotonic()
    manager.protect(SEALED)
    took = time.monotonic() - began
    left = pids(manager)
    results += stream
    print(json.dumps([took, "local-1" in left, results == list(range(1000))]))
""",
        tmp_path,
    )
    took, left, right = found
    assert 0.5 < took < 5 and not left and right


@pytest.mark.parametrize("changes", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_changes_at_random_cost_no_result_and_double_none(package: Package, tmp_path: Path, changes: int) -> None:
    seed = random.randrange(1 << 32)
    found = package.run(
        RULES
        + f"""
chance, changes, done = random.Random({seed}), {changes}, []
CLEARED = [farm.Security(trusted=["127.0.0.0/8"], clearance={{name: ["own"]}}) for name in ("local-1", "local-2")]
def grow(numbers):
    time.sleep(0.001)
    return [number + 1 for number in numbers]
def longer(text):
    time.sleep(0.001)
    return text[::-1]

def lists():
    for at in itertools.count():
        if done: return
        numbers = list(range(1 + at % 7))
        yield farm.labelled(numbers, "own") if at % 3 == 0 else numbers
def texts():
    for at in itertools.count():
        if done: return
        yield (b"%08d" % at) * (chance.choice([1, 100, 50_000]))

def compute(manager, items, right, counts):
    wrong = count = 0
    ahead, behind = itertools.tee(items())
    for item, result in zip(ahead, manager.run(behind)):
        item = getattr(item, "value", item)
        wrong += result != right(item)
        count += 1
    counts.append([count, wrong])

counts = []
program = farm.pipeline(grow, farm.map(square), farm.reduce(add))
with Manager(program, parallelism=2, security=CLEAR) as one, Manager(longer, parallelism=2, security=CLEAR) as other:
    threads = [
        threading.Thread(target=compute, args=(one, lists, lambda numbers: sum((x + 1) ** 2 for x in numbers), counts)),
        threading.Thread(target=compute, args=(other, texts, lambda text: text[::-1], counts)),
    ]
    for thread in threads: thread.start()
    # Some workers are not there yet.
    for at in range(changes):
        manager = chance.choice([one, other])
        manager.protect(chance.choice([CLEAR, SEALED, INSECURE, *CLEARED]))
        time.sleep(chance.choice([0, 0.001, 0.02, 0.1]))
        if at % 20 == 10:
            # Of the first each is named in a rule, and goes on to the end.
            other.wait_for_workers()
            os.kill(chance.choice([pid for pid in pids(other).values() if pid]), signal.SIGKILL)
    done.append(True)
    for thread in threads: thread.join(60)
    print(json.dumps([counts, sorted(pids(one))]))
""",
        tmp_path,
    )
    counts, workers = found
    assert len(counts) == 2 and all(count > 50 and wrong == 0 for count, wrong in counts), f"seed {seed}: {counts}"
    assert workers == ["local-1", "local-2"], f"seed {seed}"


@pytest.mark.parametrize("changes", [30, pytest.param(600, marks=pytest.mark.long)])
def test_changes_at_random_with_copies_of_slow_tasks(package: Package, tmp_path: Path, changes: int) -> None:
    seed = random.randrange(1 << 32)
    found = package.run(
        RULES
        + f"""
import contextlib
chance, changes, done = random.Random({seed}), {changes}, []
def cleared(*places): return farm.Security(trusted=["127.0.0.0/8"], clearance={{place: ["own"] for place in places}})
HERE = cleared("localhost")
OTHERS = [CLEAR, SEALED, INSECURE, cleared("local-1"), cleared("local-1", "local-2"), HERE, HERE]

def sometimes(x):
    # Whoever computes it anew may be faster, or as slow: the two end at about the same time, or one after the other.
    at = random.Random(x * 1000 + os.getpid())
    time.sleep(at.choice([0.001] * 8 + [at.random()]))
    return x * x

def compute(manager, counts):
    wrong = count = 0
    while not done:
        # At the end of each round some workers have nothing to do.
        some = range(count, count := count + 20)
        results = manager.compute([farm.labelled(x, "own") if x % 2 else x for x in some])
        wrong += results != [x * x for x in some]
    counts.append([count, wrong])
def call(executor, counts):
    # Each lambda is code of its own, which is forgotten when 128 others were called.
    wrong = count = 0
    while not done:
        some = range(count, count := count + 60)
        calls = [executor.submit(lambda x=x: x * x) if x % 6 else executor.submit(sometimes, x) for x in some]
        wrong += [future.result() for future in calls] != [x * x for x in some]
    counts.append([count, wrong])

def staged(_):
    import gc
    from gambeson.farm import worker
    interpreter, = [one for one in gc.get_objects() if isinstance(one, worker.Interpreter)]
    return len(interpreter._stages)

counts = []
options = {{"security": CLEAR, "attempts": 50, "speculate": True, "shm": False}}
with farm.Manager(sometimes, parallelism=4, chunk=1, **options) as one, Executor(3, **options) as executor:
    threads = [threading.Thread(target=compute, args=(one, counts)),
               threading.Thread(target=call, args=(executor, counts))]
    for thread in threads: thread.start()
    for at in range(changes):
        manager = chance.choice([one, one, executor.farm])
        if at % 2:
            # What changes next meets a copy, if one is made soon.
            manager.protect(HERE)
            before, end = manager.stats().speculated, time.monotonic() + 0.3
            until(lambda: manager.stats().speculated > before or time.monotonic() > end)
        manager.protect(chance.choice(OTHERS))
        if at % 10 == 5:
            # Those that rules name go on to the end.
            some = [pid for name, pid in pids(one).items() if name not in ("local-1", "local-2")]
            some += pids(executor.farm).values()
            for pid in chance.sample(some, min(1, len(some))):
                with contextlib.suppress(ProcessLookupError):
                    if pid: os.kill(pid, signal.SIGKILL)
    one.protect(HERE)
    until(lambda: min(manager.stats().speculated for manager in (one, executor.farm)) >= 3)
    done.append(True)
    for thread in threads: thread.join(60)
    print(json.dumps([counts, sorted(pids(one))[:2], max(executor.map(staged, range(30), chunksize=1))]))
""",
        tmp_path,
    )
    counts, workers, staged = found
    assert len(counts) == 2 and all(count > 50 and wrong == 0 for count, wrong in counts), f"seed {seed}: {found}"
    assert workers == ["local-1", "local-2"] and staged < 200, f"seed {seed}: {found}"
