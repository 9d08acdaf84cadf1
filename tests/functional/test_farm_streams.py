"""Streams of a farm: how much is taken in, what cancels them, and where items come from."""

from __future__ import annotations

from pathlib import Path

from harness.farms import HEAD
from harness.python import Package


def test_streams_without_end_take_no_more_in_than_is_wanted(package: Package, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\nbb\nccc\n")
    found = package.run(
        HEAD
        + """
taken = 0
def endless():
    global taken
    while True:
        taken += 1
        yield taken

async def asynchronous(manager):
    async def inputs():
        for x in range(10):
            await asyncio.sleep(0.001)
            yield x
    return [y async for y in manager.arun(inputs())]

import queue
messages = queue.Queue()
for message in [1, 2, None]:
    messages.put(message)

with farm.Manager(square, parallelism=2) as manager:
    ordered = list(itertools.islice(manager.run(endless()), 500))
    after_500 = taken
    unordered = list(itertools.islice(manager.run(range(1, 2000), ordered=False), 1999))
    big = bytes(1 << 20)
    in_memory = 0
    with farm.Manager(len, parallelism=1, memory=8 << 20) as narrow:
        results = narrow.run(itertools.repeat(big))
        next(results)
    print(json.dumps({
        "ordered": ordered == [x * x for x in range(1, 501)],
        "taken": after_500,
        "unordered": sorted(unordered) == [x * x for x in range(1, 2000)],
        "asynchronous": asyncio.run(asynchronous(manager)),
        "lines": farm.run(len, farm.lines("lines.txt"), parallelism=1),
        "files": [path.name for path in farm.files(".", "*.txt")],
        "messages": manager.compute(farm.messages(messages)),
    }))
""",
        tmp_path,
    )
    # What is under way or waits is bounded by what makes workers busy for some milliseconds.
    assert found.pop("taken") < 500_000
    assert found == {
        "ordered": True,
        "unordered": True,
        "asynchronous": [x * x for x in range(10)],
        "lines": [1, 2, 3],
        "files": ["lines.txt"],
        "messages": [1, 4],
    }


def test_what_is_under_way_of_a_stream_is_bounded_by_what_all_of_the_program_takes(
    package: Package, tmp_path: Path
) -> None:
    found = package.run(
        HEAD
        + """
def several(x): return [x] * 100
def wide(x): return bytes(2 << 20)
def slow(x):
    time.sleep(2e-4)
    return x

taken = 0
def endless():
    global taken
    while True:
        taken += 1
        yield taken

def most(program, **options):
    \"""Items that were taken in and had not come out, at the most.\"""
    global taken
    taken, found = 0, 0
    with farm.Manager(program, parallelism=2, **options) as manager:
        manager.wait_for_workers()
        began = time.monotonic()
        for count, _ in enumerate(manager.run(endless()), 1):
            found = max(found, taken - count)
            if time.monotonic() - began > 2:
                return found

print(json.dumps([
    # Items of the first stage are worth nothing: of a thousand of them the second has work for 0.2 s, or for 20 s.
    most(square), most(farm.pipeline(square, farm.sensitive_code(slow))),
    most(farm.pipeline(several, farm.map(slow))),
    # Nobody knows how long results are before there is one.
    most(wide, memory=16 << 20),
]))
""",
        tmp_path,
    )
    alone, behind, mapped, wide = found
    assert alone <= 50_000 and behind <= 1000 and mapped <= 50 and wide <= 12, found


def test_who_leaves_a_run_early_cancels_what_is_under_way_for_it(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
def work(item):
    run, number = item
    with open(f"begun-{run}-{number}", "w"):
        pass
    if run == "first" and number % 4:
        # One in four is done at once: of that the reader has a result.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.01)
    if run == "stuck" and number:
        time.sleep(60)
    return item

def begun(run):
    return len([name for name in os.listdir() if name.startswith(f"begun-{run}-")])

def pids(manager):
    return sorted(worker.pid for worker in manager.stats().workers)

with farm.Manager(work, parallelism=2, attempts=1, chunk=1) as manager:
    manager.wait_for_workers()
    before = pids(manager)
    for ordered in True, False:
        for _ in manager.run((("first", number) for number in itertools.count()), ordered=ordered):
            break
    began = time.monotonic()
    second = manager.compute([("second", number) for number in range(100)])
    took = time.monotonic() - began
    left = begun("first")
    # They left off, and are the same as before; had they not, they would have been ended by now.
    time.sleep(3)
    same = pids(manager) == before and begun("first") == left
    lost = manager.stats().recovered
    # One that cannot leave off is ended, and the next run does not wait for its task.
    for _ in manager.run([("stuck", number) for number in range(8)]):
        break
    third = manager.compute([("third", number) for number in range(4)])
    until = time.monotonic() + 20
    while set(pids(manager)) & set(before) and time.monotonic() < until:
        time.sleep(0.05)
    ended = len(set(pids(manager)) & set(before))

async def some(manager):
    async for result in manager.arun((("first", 4 * number) for number in itertools.count())):
        return result

with farm.Manager(farm.map(work), parallelism=2) as manager:
    for _ in manager.run([[("first", 0)], [("first", 1), ("first", 2)], [("first", 3)]]):
        break
    nested = manager.compute([[("second", 1), ("second", 2)]])
with farm.Manager(work, parallelism=2) as manager:
    asynchronous = asyncio.run(some(manager))
    after = manager.compute([("second", 5)])
print(json.dumps([second, took, same, lost, third, ended, nested, asynchronous, after]))
""",
        tmp_path,
    )
    second, took, same, lost, third, ended, nested, asynchronous, after = found
    assert second == [["second", number] for number in range(100)]
    assert took < 20 and same and lost == 0
    assert third == [["third", number] for number in range(4)] and ended < 2
    assert nested == [[["second", 1], ["second", 2]]] and asynchronous == ["first", 0] and after == [["second", 5]]


def test_a_process_of_its_own_iterates_and_pickles(package: Package, tmp_path: Path) -> None:
    found = package.run(
        """
import json, os, threading, time, warnings
from gambeson import farm
import numpy
warnings.simplefilter("error")

def makers_of(pid):
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return [int(child) for child in children if b"gambeson.farm" not in open(f"/proc/{child}/cmdline", "rb").read()]

def total(item): return float(item[0].sum()), item[1], sorted(item[2])

def items(count):
    for at in range(count):
        yield numpy.full(100_000, float(at)), os.getpid(), {"a", "b"}

def broken():
    yield from items(2)
    raise KeyError("no further file")

def stuck():
    yield from items(1)
    time.sleep(1000)

if __name__ == "__main__":
    mine = os.getpid()
    with farm.Manager(total, parallelism=2, proxy="process") as manager:
        results = manager.compute(items(300))
        in_order = [value for value, _, _ in results] == [100_000.0 * at for at in range(300)]
        makers = {maker for _, maker, _ in results}
        for _ in manager.run(items(10**9)):
            break
        labelled = [item for item, _, _ in manager.compute(farm.labelled(item, "own") for item in items(3))]
        sentences = []
        for stream in (broken(), stuck()):
            taken = 0
            try:
                if stream.gi_code.co_name == "stuck":
                    # Its process is ended from outside.
                    threading.Timer(1.0, lambda: [os.kill(copy, 9) for copy in makers_of(mine)]).start()
                for _ in manager.run(stream):
                    taken += 1
            except (KeyError, farm.FarmError) as error:
                sentences.append([taken, f"{type(error).__name__}: {error}", str(error.__cause__)])
        left = makers_of(mine)
    print(json.dumps([in_order, len(makers), mine in makers, labelled, sentences, left]))
""",
        tmp_path,
    )
    in_order, makers, mine, labelled, sentences, left = found
    assert in_order and makers == 1 and not mine and labelled == [0.0, 100_000.0, 200_000.0]
    (_, raised, where), (_, killed, _) = sentences
    assert raised == "KeyError: 'no further file'" and "in broken" in where
    assert killed == "FarmError: the process that iterates over the stream ended: by signal 9"
    assert left == []


def test_progress_is_told_and_shown(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import termios

def fails(x):
    if x == 150:
        raise ValueError
    return x

def shown(inputs, most=None):
    # What stands in the last line of a terminal, by tqdm.
    there, here = os.openpty()
    termios.tcsetwinsize(here, (24, 100))
    before, sys.stderr = sys.stderr, os.fdopen(here, "w")
    try:
        for _ in itertools.islice(manager.run(inputs, progress=True), most):
            pass
    except ValueError:
        pass
    finally:
        sys.stderr, terminal = before, sys.stderr
    terminal.close()
    said = b""
    try:
        while chunk := os.read(there, 1 << 16):
            said += chunk
    except OSError:
        os.close(there)
    return said.decode().strip().split("\\r")[-1]

told = []
with farm.Manager(fails, parallelism=2) as manager:
    results = manager.run(range(100), progress=lambda *so_far: told.append(so_far))
    next(results), results.close()
    list(manager.run((x for x in range(100)), progress=lambda *so_far: told.append(so_far)))
    bars = [shown(range(100)), shown(range(300)), shown(range(100), 20), shown(iter([1]))]
print(json.dumps([told[0], told[-1], *bars]))
""",
        tmp_path,
    )
    left, ended, whole, failed, some, unknown = found
    assert left == [1, 100] and ended == [100, None]
    assert "100/100" in whole and "150/300" in failed and "20/100" in some and unknown.startswith("1 items [")
