"""gambeson.farm and gambeson.Executor from an installed wheel, with workers on this host."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import pytest
from conftest import unavailable
from harness.mpis import ROOT
from harness.python import Package

HEAD = """
import asyncio, itertools, json, operator, os, signal, sys, threading, time
from gambeson import farm

def square(x): return x * x
def add(a, b): return a + b

def outcomes(results):
    return [str(type(r.error).__name__) if isinstance(r, farm.Failure) else r for r in results]
"""


def test_skeletons_nest_and_compute_what_they_say(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
def collatz(x): return x // 2 if x % 2 == 0 else 3 * x + 1
def not_one(x): return x != 1
async def later(x):
    await asyncio.sleep(0.001)
    return -x

def compute(program, inputs, **options):
    return farm.run(program, inputs, parallelism=2, **options)

print(json.dumps({
    "function": compute(square, range(5)),
    "pipeline": compute(farm.pipeline(square, farm.farm(str), len), [1, 9, 100]),
    "or": compute(farm.stage(square) | str, [3]),
    "map": compute(farm.map(square), [range(4), [], [7]]),
    "reduce": compute(farm.pipeline(farm.map(square), farm.reduce(add)), [range(100), [3]]),
    "reduce in order": compute(farm.reduce(add, chunk=2), ["abcdefghijklmnopqrstuvwxyz"]),
    "scan": compute(farm.scan(add), [list(range(40)), [5], []]),
    "scan in order": compute(farm.scan(add, chunk=3), ["abcdefgh"]),
    "iterate": compute(farm.iterate(collatz, again=not_one), [27, 9, 1]),
    "iterate so often": compute(farm.iterate(square, times=3), [2, 3]),
    "map of iterate of map": compute(farm.map(farm.iterate(farm.map(square), times=2)), [[[2], [3, 1]]]),
    "coroutine": compute(later, range(50)),
    "lambda": compute(lambda x: x + 1, range(3)),
    "chunked": compute(square, range(100), chunk=7),
}))
""",
        tmp_path,
    )
    assert found == {
        "function": [0, 1, 4, 9, 16],
        "pipeline": [1, 2, 5],
        "or": ["9"],
        "map": [[0, 1, 4, 9], [], [49]],
        "reduce": [328350, 9],
        "reduce in order": ["abcdefghijklmnopqrstuvwxyz"],
        "scan": [list(itertools.accumulate(range(40))), [5], []],
        "scan in order": [list(itertools.accumulate("abcdefgh"))],
        # The body runs once before it is asked.
        "iterate": [1, 1, 1],
        "iterate so often": [256, 6561],
        "map of iterate of map": [[[16], [81, 1]]],
        "coroutine": [-x for x in range(50)],
        "lambda": [1, 2, 3],
        "chunked": [x * x for x in range(100)],
    }


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
    assert alone <= 20_000 and behind <= 1000 and mapped <= 50 and wide <= 12, found


def test_arrays_come_back_as_views_that_may_be_written(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import numpy
class Own:
    def __init__(self, x): self.x = x
def same(x): return x
def own(x): return Own(x)
array = numpy.arange(1 << 18, dtype="f8").reshape(512, 512)
with farm.Manager(same, parallelism=1) as manager:
    back = manager.compute([array, array.T, array[::2], [array, {"inside": array[0]}]])
    back[0][0, 0] = 1.5
    checks = [
        bool((back[1] == array.T).all()), bool((back[2] == array[::2]).all()),
        bool((back[3][1]["inside"] == array[0]).all()), not back[0].flags.owndata, back[0].flags.writeable,
        back[0].flags.aligned,
    ]
with farm.Manager(own, parallelism=1) as manager:
    one, = manager.compute([3])
    checks += [type(one) is Own, one.x]
print(json.dumps(checks))
""",
        tmp_path,
    )
    assert found == [True, True, True, True, True, True, True, 3]


def test_what_a_stage_raises_stands_in_its_place(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
class Own(Exception):
    pass

def fails(x):
    if x == 3:
        raise ValueError("three is not allowed")
    if x == 4:
        raise Own("four")
    return x

tries = {}
def at_last(x):
    tries[x] = tries.get(x, 0) + 1
    if tries[x] < 3:
        raise ConnectionError("not yet")
    return x

with farm.Manager(farm.pipeline(fails, farm.stage(square)), parallelism=2, chunk=5) as manager:
    returned = manager.compute(range(6), errors="return")
    try:
        manager.compute(range(6))
    except ValueError as error:
        raised = str(error), str(error.__cause__)
    own = isinstance(returned[4].error, Own)
    again = manager.compute([1])
with farm.Manager(farm.map(fails), parallelism=2) as manager:
    mapped = outcomes(manager.compute([[1, 2], [2, 3], [5]], errors="return"))
with farm.Manager(at_last, parallelism=1, retries=2) as manager:
    retried = manager.compute([7, 8])
    counted = manager.stats().retried
print(json.dumps([outcomes(returned), raised, own, again, mapped, retried, counted]))
""",
        tmp_path,
    )
    returned, raised, own, again, mapped, retried, counted = found
    assert returned == [0, 1, 4, "ValueError", "Own", 25]
    assert raised[0] == "three is not allowed"
    assert "in fails" in raised[1] and "_run.py" not in raised[1]
    assert own and again == [1]
    assert mapped == [[1, 2], "ValueError", [5]]
    assert (retried, counted) == ([7, 8], 4)


def test_workers_that_die_are_replaced_and_a_task_that_ends_them_is_given_up(package: Package, tmp_path: Path) -> None:
    done = package.call(
        HEAD
        + """
def dies(x):
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x

with farm.Manager(dies, parallelism=2) as manager:
    results = manager.compute(range(60), errors="return")
    print(json.dumps([outcomes(results), str(results[5].error)]))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found, sentence = json.loads(done.stdout)
    assert found == [x if x != 5 else "PoisonedTask" for x in range(60)]
    assert "ended every worker that it was given to, 3 of them" in sentence
    # Each is named with how it ended, as its process or its link says.
    assert sentence.count(" on localhost: ") == 3
    # Beside the three, those whose end another task was taken for that had gone before it.
    assert 3 <= len(re.findall(r"worker local-\d+ on localhost is lost: ", done.stderr)) <= 8


def test_a_task_that_takes_too_long_is_given_up_and_others_are_not(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
def slow(x):
    deadline = time.monotonic() + 60
    while x == 2 and time.monotonic() < deadline:
        pass
    return x

def stuck(x):
    if x == 2:
        # Holds Python's lock: nothing in its process can be told anything.
        import ctypes
        ctypes.PyDLL(None).sleep(60)
    return x

found = []
for stage in slow, stuck:
    began = time.monotonic()
    with farm.Manager(stage, parallelism=2, timeout=0.7) as manager:
        results = manager.compute(range(8), errors="return")
        found.append([outcomes(results), str(results[2].error), time.monotonic() - began])
print(json.dumps(found))
""",
        tmp_path,
    )
    for outcomes, sentence, took in found:
        assert outcomes == [0, 1, "TaskTimeout", 3, 4, 5, 6, 7]
        assert "took longer than 0.7 s on local-" in sentence
        assert took < 30


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


def test_what_cannot_be_loaded_where_it_is_gathered_fails_its_item_alone(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
def missing(x):
    raise ModuleNotFoundError("No module named 'theirs'")

def work(x):
    if x == 3:
        class Unloadable:
            def __reduce__(self): return missing, (3,)
        return Unloadable()
    return x

def work_of_list(items): return [work(x) for x in items]

def shown(results):
    return [[type(r.error).__name__, str(r.error)] if isinstance(r, farm.Failure) else r for r in results]

found = {}
for name, program, inputs in [
    ("each", farm.stage(work), range(5)),
    ("map", farm.map(work), [[1, 2], [3, 4], [5]]),
    ("mapped", farm.pipeline(work_of_list, farm.map(work)), [[1], [3], [5]]),
    ("reduce", farm.pipeline(farm.map(work), farm.reduce(add)), [[1, 2], [3, 4], [5]]),
]:
    for verify in 0.0, 1.0:
        with farm.Manager(program, parallelism=2, chunk=1, verify=verify) as manager:
            found[f"{name} {verify}"] = shown(manager.compute(inputs, errors="return"))
            found[f"{name} {verify} lost"] = manager.stats().recovered
import gambeson
with gambeson.Executor(1) as executor:
    error = executor.submit(work, 3).exception()
    found["future"] = [type(error).__name__, str(error)], executor.submit(work, 4).result()
print(json.dumps(found))
""",
        tmp_path,
    )
    sentence = (
        "what a worker returned cannot be loaded by the program that gets it: ModuleNotFoundError: No module named "
        "'theirs'; install that where the program runs, too"
    )
    failed = ["StageError", sentence]
    for verify in ("0.0", "1.0"):
        assert found[f"each {verify}"] == [0, 1, 2, failed, 4]
        assert found[f"map {verify}"] == [[1, 2], failed, [5]]
        assert found[f"mapped {verify}"] == [[1], failed, [5]]
        assert found[f"reduce {verify}"] == [3, failed, 5]
        assert not any(found[f"{name} {verify} lost"] for name in ("each", "map", "mapped", "reduce"))
    assert found["future"] == [failed, 4]


def test_whoever_waits_for_a_farm_that_is_closed_hears_of_it_at_once(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson

def outcome(wait):
    began = time.monotonic()
    try:
        wait()
    except BaseException as error:
        return type(error).__name__, str(error), time.monotonic() - began

def closed_while(manager, *waits):
    found = [None] * len(waits)
    def ask(at):
        found[at] = outcome(waits[at])
    threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(waits))]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    manager.close()
    for thread in threads:
        thread.join(30)
    return found

manager = farm.Manager(farm.map(time.sleep), parallelism=2)
manager.wait_for_workers()
found = closed_while(
    manager, lambda: list(manager.run([[60, 60]])), lambda: list(manager.run([[60]], ordered=False)),
    lambda: manager.wait_for_workers(9),
)
executor = gambeson.Executor(2)
futures = [executor.submit(time.sleep, 60) for _ in range(10)]
found += closed_while(executor.farm, futures[0].result, futures[9].result, lambda: executor.shutdown() or 1 / 0)
found.append(outcome(lambda: list(manager.run([[1]]))))
print(json.dumps([found, all(future.done() for future in futures)]))
""",
        tmp_path,
    )
    outcomes, done = found
    *waited, shutdown, later = outcomes
    assert all(outcome[:2] == ["FarmError", "this farm was closed"] for outcome in [*waited, later]), outcomes
    assert shutdown[0] == "ZeroDivisionError" and done
    assert all(outcome[2] < 3 for outcome in outcomes), outcomes


@pytest.mark.parametrize(
    ("program", "error", "sentence"),
    [
        ("lock = threading.Lock()\nfarm.run(lambda x: lock, [1])", "StageError", "cannot be pickled"),
        ("farm.run(lambda x: threading.Lock(), [1])", "RemoteError", "the result, of type lock, cannot be pickled"),
        ("api_key = 'abc'\nfarm.run(lambda x: api_key, [1])", "StageError", "'api_key', which looks like a secret"),
        (
            "pem = '-----BEGIN ' + 'PRIVATE KEY-----\\nMC4C'\nfarm.run(lambda x: pem, [1])",
            "StageError",
            "Mark the stage @sensitive_code",
        ),
        (
            "patients = farm.labelled([1], 'patients')\nfarm.run(lambda x: patients, [1])",
            "StageError",
            "labelled patients",
        ),
        ("farm.run(square, 3)", "TypeError", "a int has no items to compute"),
        ("farm.run(3, [1])", "TypeError", "3 is no stage"),
        ("farm.run(farm.map(square), [3])", "FarmError", "a sequence is wanted"),
        ("farm.run(farm.reduce(add), [[]])", "FarmError", "an empty sequence came to a reduce"),
        ("farm.run(square, [1], parallelism=0)", "ValueError", "a parallelism of 0 is none"),
        (
            "farm.run(lambda x: bytes(2_000_000), [1], largest=1_000_000)",
            "RemoteError",
            "and 1000000 are the most that a token may have",
        ),
        ("farm.run(len, [bytes(3_000_000)], largest=1_000_000)", "FarmError", "an item for stage 'len' has 3000"),
        ("farm.Manager(square, throughput=-1)", "ValueError", "a throughput of -1 items a second is none"),
        ("farm.iterate(square)", "ValueError", "an iteration ends"),
        ("farm.sensitive_data('sideways')", "ValueError", "says nowhere where data is"),
        ("def g(x): yield x\nfarm.run(g, [1])", "TypeError", "is a generator function"),
        ("farm.run(square, [threading.Lock()])", "TypeError", "cannot pickle"),
        (
            "farm.run(square, [1], workers=farm.Recruiter(['/no/such/command']))",
            "WorkersLost",
            "is /no/such/command installed?",
        ),
        ("farm.run(square, [1], workers=farm.Recruiter(['false']))", "WorkersLost", "it ended without a word"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    package: Package, tmp_path: Path, program: str, error: str, sentence: str
) -> None:
    indented = "\n".join("    " + line for line in program.splitlines())
    found = package.run(
        f"{HEAD}\ntry:\n{indented}\nexcept Exception as error:\n"
        "    print(json.dumps([type(error).__name__, str(error)]))\n",
        tmp_path,
    )
    assert found is not None, "nothing was raised"
    assert found[0] == error
    assert sentence in found[1]


def test_code_that_the_manager_did_not_sign_for_this_job_is_not_loaded(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import dataclasses
import cloudpickle
from gambeson.farm._code import StagedCode

with farm.Manager(square, parallelism=1) as manager, farm.Manager(square, parallelism=1) as other:
    (entry,), (foreign,) = manager._pool.staged.values(), other._pool.staged.values()
    sent = StagedCode.decode(entry.code.encode())
    sent.check(manager._key, manager._job, None)
    altered = [
        dataclasses.replace(sent, code=cloudpickle.dumps((os.getpid,))),
        dataclasses.replace(sent, name="another"),
        dataclasses.replace(sent, version=2),
        dataclasses.replace(sent, job=other._job),
        dataclasses.replace(sent, signature=foreign.code.signature, key=foreign.code.key),
        foreign.code,
    ]
    refused = []
    for code in altered:
        try:
            code.check(manager._key, manager._job, None)
        except farm.StageError as error:
            refused.append(str(error))
print(json.dumps([len(altered), refused]))
""",
        tmp_path,
    )
    count, refused = found
    assert len(refused) == count and all(
        "is not signed by the manager for this job" in sentence for sentence in refused
    )


def test_a_worker_of_another_python_is_sent_away(package: Package, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("import platform, sys\nplatform.python_version = lambda: '3.9.7'\n"
                     "from gambeson.farm import worker\nsys.exit(worker.main([]))\n")  # fmt: skip
    done = package.call(
        HEAD
        + f"""
workers = farm.Recruiter(python=[sys.executable, {str(other)!r}], local=True)
try:
    farm.run(square, [1], workers=workers)
except farm.WorkersLost as error:
    print(error)
""",
        tmp_path,
    )
    assert "it has Python 3.9.7" in done.stdout and "staged code is for the same Python alone" in done.stdout, (
        done.stderr
    )


def test_code_is_staged_once_and_hashes_name_it(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
with farm.Manager(farm.pipeline(square, farm.map(square)), parallelism=2) as manager:
    manager.graph.show()
    print(json.dumps([str(manager.graph), manager.graph.show(), manager.hashes]))
""",
        tmp_path,
    )
    text, picture, hashes = found
    assert text == "square -> map[ square ]"
    root = xml.etree.ElementTree.fromstring(picture)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in texts if word in ("in", "square", "map", "out")] == [
        "in",
        "square",
        "map",
        "square",
        "out",
    ]
    assert list(hashes) == ["square"] and re.fullmatch("[0-9a-f]{64}", hashes["square"])


def test_an_executor_is_one_of_pythons(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
from concurrent import futures
import gambeson

def raises(): raise KeyError("gone")
def dies(): os.kill(os.getpid(), signal.SIGKILL)

class Callable:
    def __call__(self, x): return x + 1

with gambeson.Executor(2) as executor:
    assert isinstance(executor, futures.Executor)
    one = executor.submit(add, 1, b=2).result()
    mapped = list(executor.map(add, range(1000), range(1000)))
    many = [executor.submit(square, x) for x in range(500)]
    completed = sum(future.result() for future in futures.as_completed(many))
    try:
        executor.submit(raises).result()
    except KeyError as error:
        raised = str(error)
    poisoned = type(executor.submit(dies).exception(30)).__name__
    objects = executor.submit(Callable(), 1).result(), executor.submit(operator.add, 1, 2).result()
    lambdas = [executor.submit(lambda x=x: x).result() for x in range(3)]
    sleepers = [executor.submit(time.sleep, 0.2) for _ in range(40)]
    cancelled = sleepers[-1].cancel()
    late = None
    try:
        list(executor.map(time.sleep, [30], timeout=0.3))
    except TimeoutError:
        late = True
    executor.shutdown(wait=False, cancel_futures=True)
try:
    executor.submit(square, 1)
except RuntimeError as error:
    shut = str(error)
print(json.dumps([one, mapped == [2 * x for x in range(1000)], completed, raised, poisoned, objects, lambdas, cancelled,
                  late, shut]))
""",
        tmp_path,
    )
    completed = sum(x * x for x in range(500))
    shut = "cannot schedule new futures after shutdown"
    assert found == [3, True, completed, "'gone'", "PoisonedTask", [2, 3], [0, 1, 2], True, True, shut]


def test_an_executor_cancels_what_a_worker_is_at(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson

def work(number):
    with open(f"begun-{number}", "w"):
        pass
    while True:
        time.sleep(0.01)

def until(is_so):
    deadline = time.monotonic() + 20
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()

with gambeson.Executor(1) as executor:
    pid = executor.submit(os.getpid).result()
    running, waiting = [executor.submit(work, number) for number in range(2)]
    began = until(lambda: os.path.exists("begun-0"))
    cancelled = executor.cancel(waiting), executor.cancel(running), running.cancelled(), waiting.cancelled()
    after = executor.submit(os.getpid)
    same = after.result(20) == pid
    again = executor.cancel(after), executor.cancel(running), os.path.exists("begun-1")
print(json.dumps([began, cancelled, same, again]))
""",
        tmp_path,
    )
    assert found == [True, [True] * 4, True, [False, True, False]]


def test_futures_of_a_farm_without_workers_fail_and_do_not_wait_for_ever(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson
executor = gambeson.Executor(2, workers=farm.Recruiter(["false"]))
futures = [executor.submit(square, x) for x in range(20)]
raised = [type(future.exception(60)).__name__ for future in futures]
executor.shutdown()
print(json.dumps([raised, str(futures[0].exception())]))
""",
        tmp_path,
    )
    assert found[0] == ["WorkersLost"] * 20 and "it ended without a word" in found[1]


def test_who_is_told_of_a_future_may_take_locks_that_submitters_hold(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson
lock = threading.RLock()
told = 0

def tell(future):
    global told
    with lock:
        told += 1

with gambeson.Executor(2) as executor:
    for x in range(2000):
        # As libraries do that keep their books so.
        with lock:
            executor.submit(square, x).add_done_callback(tell)
        if x % 100 == 0:
            nested = executor.submit(square, 3)
            nested.add_done_callback(lambda _: executor.submit(square, 4).add_done_callback(tell))
    deadline = time.monotonic() + 30
    while told < 2020 and time.monotonic() < deadline:
        time.sleep(0.01)
print(json.dumps(told))
""",
        tmp_path,
    )
    assert found == 2020


def test_joblib_runs_on_a_farm(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import joblib, gambeson, math
from gambeson.farm.joblib import register
register()
with joblib.parallel_config(backend="gambeson", n_jobs=2):
    many = joblib.Parallel()(joblib.delayed(square)(x) for x in range(3000))
    try:
        joblib.Parallel()(joblib.delayed(math.sqrt)(x) for x in (1, -1))
    except ValueError as error:
        raised = str(error)
with gambeson.Executor(2) as executor, joblib.parallel_config(backend="gambeson", executor=executor):
    generated = list(joblib.Parallel(return_as="generator")(joblib.delayed(square)(x) for x in range(20)))
    there = executor.submit(square, 3).result()
print(json.dumps([many == [x * x for x in range(3000)], raised, generated, there]))
""",
        tmp_path,
    )
    assert (found[0] and "math domain" in found[1]) or "nonnegative" in found[1]
    assert found[2:] == [[x * x for x in range(20)], 9]


def test_contracts_are_kept_and_workers_without_work_released(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
def work(seconds):
    time.sleep(seconds)
    return seconds

def workers(manager):
    return len(manager.stats().workers)

seen = []
with farm.Manager(work, parallelism=8, throughput=250, chunk=1) as manager:
    # One brings 95 of these a second at the most.
    began = time.monotonic()
    for at, _ in enumerate(manager.run(itertools.repeat(0.01))):
        if time.monotonic() - began > 6:
            break
    seen.append(workers(manager))
    started = manager.compute([0]) and workers(manager)
    # And of these far more.
    began = time.monotonic()
    for _ in manager.run(itertools.repeat(0.0005)):
        if time.monotonic() - began > 6:
            break
    seen.append(workers(manager))
with farm.Manager(square, parallelism=2, idle=0.5) as manager:
    first = manager.compute(range(10)), workers(manager)
    deadline = time.monotonic() + 20
    while workers(manager) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = workers(manager)
    again = manager.compute(range(10))
print(json.dumps([seen, first, left, again]))
""",
        tmp_path,
    )
    (many, few), first, left, again = found
    squares = [x * x for x in range(10)]
    # Three would do; a busy machine gets there later, or sees less of what each brings.
    assert 2 <= many <= 8 and few < many, (many, few)
    assert first[0] == squares and first[1] >= 1
    assert left == 0 and again == squares


def test_types_follow_the_program(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text("""
from gambeson import farm

def half(x: int) -> float: return x / 2
def text(x: float) -> str: return str(x)
async def later(x: str) -> bytes: return x.encode()
def add(a: float, b: float) -> float: return a + b

reveal_type(farm.pipeline(half, farm.farm(text), farm.stage(later)))
reveal_type(farm.pipeline(farm.map(half), farm.reduce(add)))
reveal_type(farm.Manager(farm.stage(half) | text).compute([1]))
reveal_type(farm.run(farm.map(half), [[1]]))
farm.pipeline(text, half)
""")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(tmp_path / "typed.py")]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(
        [*command, "--config-file", "/dev/null", "--ignore-missing-imports"], capture_output=True, text=True,
        env=environment, cwd=tmp_path,
    )  # fmt: skip
    mine = [line.partition("typed.py:")[2] for line in done.stdout.splitlines() if "typed.py" in line]
    types = [line.partition('is "')[2].rstrip('"').replace("gambeson.farm._skeleton.", "") for line in mine[:4]]
    assert types == ["Skeleton[int, bytes]", "Skeleton[typing.Sequence[int], float]", "list[str]", "list[list[float]]"]
    assert len(mine) == 5 and mine[4].startswith("13: error"), done.stdout


def test_the_example_runs_as_its_text_says(package: Package, tmp_path: Path) -> None:
    picture = tmp_path / "graph.svg"
    example = ROOT / "examples" / "farm" / "images.py"
    process = package.start(example, "--images", "12", "--size", "64", "--picture", picture, cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "smooth -> render -> count_bright" in out
    assert re.search(r"12 images, [1-9]\d* bright points", out)
    assert "code     sealed: the code is sensitive" in out and "data     sealed: the data is sensitive: patients" in out
    assert "declassifies patients" in picture.read_text()


def test_a_page_shows_the_farm_at_work_to_who_has_its_token(package: Package, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        unavailable("there is no chromium: run tools/bootstrap.sh test as root")
    found = package.run(
        HEAD
        + f"""
import http.client, subprocess, urllib.error, urllib.request

@farm.sensitive_data("inout", label="patients")
def work(x):
    time.sleep(0.002)
    return x

def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

with farm.Manager(farm.pipeline(work, square), parallelism=2) as manager:
    manager.wait_for_workers()
    page = manager.page()
    threading.Thread(target=lambda: [None for _ in manager.run(itertools.count())], daemon=True).start()
    time.sleep(0.5)
    bearer = {{"Authorization": "Bearer " + page.token}}
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    shown = subprocess.run([{browser!r}, *options, page.url], capture_output=True, text=True, timeout=60).stdout
    print(json.dumps([
        shown, get(page.address + "/metrics", **bearer), get(page.address + "/stats", **bearer)[1],
        [get(page.address + path)[0] for path in ("/", "/stats", "/metrics", "/?token=wrong")],
        get(page.address + "/", Authorization="Bearer wrong")[0],
        get(page.address + "/stats", Host="attacker.example:80", **bearer)[0],
        get(page.address + "/elsewhere", **bearer)[0], str(page.token in shown),
    ]))
    manager.close()
""",
        tmp_path,
    )
    shown, (status, metrics), stats, without, wrong, rebound, elsewhere, told = found
    for word in ("local-1", "local-2", "work", "square", "the data is sensitive: patients", 'class="sealed">sealed'):
        assert word in shown, f"the page has no {word}"
    assert '<p id="lost" role="status"></p>' in shown and told == "False"
    assert status == 200 and "gambeson_farm_workers 2" in metrics
    assert re.search(r'gambeson_farm_worker_tasks_total\{worker="local-1",host="localhost"\} [1-9]', metrics)
    assert {worker["name"] for worker in json.loads(stats)["workers"]} == {"local-1", "local-2"}
    assert (without, wrong, rebound, elsewhere) == ([403] * 4, 403, 403, 404)


def test_whatever_is_read_as_plain_data_is_data_or_refused(package: Package, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    found = package.run(
        f"""
import json, random
import numpy, pyarrow
from gambeson.farm import _plain

chance = random.Random({seed})
record = numpy.array([(1, 2.5, [3, 4])], dtype=[("a", "i4"), ("b", "f8"), ("c", "u2", (2,))])
values = [
    [1, 2.5, "x", None, True], {{"a": (1, {{2, 3}}, frozenset([4])), "b": 1 << 90, "c": 2j, 3: -(1 << 63)}},
    [b"q" * 5000, bytearray(b"z" * 10)], numpy.arange(12.0).reshape(3, 4), numpy.asfortranarray(numpy.ones((2, 3))),
    record, numpy.array(["ab", "c"]), numpy.array(["2026-01-01", "NaT"], dtype="M8[D]"), numpy.float32(3),
    pyarrow.table({{"a": [1, 2], "b": ["x", None]}}), pyarrow.array([1, 2, 3]), pyarrow.table({{"a": []}}),
]
same = 0
for value in values:
    back = _plain.load([bytes(part) for part in _plain.dump(value)])
    same += bool((back == value).all()) if isinstance(value, numpy.ndarray) and value.dtype.kind != "M" else 1
    assert [bytes(part) for part in _plain.dump(back)] == [bytes(part) for part in _plain.dump(value)], value
refused = 0
for _ in range(20_000):
    parts = [bytearray(bytes(part)) for part in _plain.dump(chance.choice(values))]
    for _ in range(chance.randrange(1, 6)):
        part = chance.choice(parts)
        at = chance.randrange(len(part) + 1)
        match chance.randrange(4):
            case 0 if at < len(part): part[at] = chance.randrange(256)
            case 1: del part[at:]
            case 2: part[at:at] = chance.randbytes(chance.randrange(8))
            case _: part[at:] = chance.choice(parts)[:20]
    try:
        _plain.load([bytes(part) for part in parts])
    except ValueError:
        refused += 1
print(json.dumps([same == len(values), refused]))
""",
        tmp_path,
    )
    assert found[0] and found[1] > 10_000, f"seed {seed}: {found}"


def test_no_worker_outlives_its_manager(package: Package, tmp_path: Path) -> None:
    done = package.call(
        HEAD
        + """
manager = farm.Manager(lambda x: os.getpid(), parallelism=2, chunk=1)
manager.wait_for_workers()
print(json.dumps(sorted(set(manager.compute(range(200))))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path,
    )
    pids = json.loads(done.stdout)
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"of the workers {pids} one is left"
        time.sleep(0.1)


@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_workers_killed_at_random_cost_no_result_and_double_none(package: Package, tmp_path: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    done = package.call(
        HEAD
        + f"""
import random
chance = random.Random({seed})
killed = 0

def work(item):
    deadline = time.perf_counter() + item % 7 * 1e-3
    while time.perf_counter() < deadline:
        pass
    return item * item

def sums(items): return sum(items)

def kill(manager):
    global killed
    while killed < {kills}:
        time.sleep(chance.random() * 0.2)
        workers = [worker.pid for worker in manager.stats().workers if worker.pid]
        if workers:
            try:
                os.kill(chance.choice(workers), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                killed += 1
            except ProcessLookupError:
                pass

def inputs():
    at = 0
    while killed < {kills} or at % 100:
        yield at
        at += 1

for program in farm.stage(work), farm.pipeline(lambda item: [item] * 5, farm.map(work), sums):
    killed = 0
    # A task that was there when its worker was killed, again and again, is no poison here.
    with farm.Manager(program, parallelism=4, attempts=50) as manager:
        threading.Thread(target=kill, args=(manager,), daemon=True).start()
        count = 0
        for count, result in enumerate(manager.run(inputs()), 1):
            expected = (count - 1) ** 2 * (1 if program.parts() == () else 5)
            assert result == expected, (count, result, expected)
        unordered = sorted(manager.run(range(500), ordered=False))
        assert unordered == [at * at * (1 if program.parts() == () else 5) for at in range(500)]
        assert count % 100 == 0, count
print(json.dumps(True))
""",
        tmp_path,
        timeout=3000,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"


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
