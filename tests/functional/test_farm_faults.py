"""What goes wrong in a farm: workers that end or hang, results that cannot be loaded, farms that are closed."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest
from harness.farms import HEAD
from harness.python import Package


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
        # Some before they did anything; if that is so of one after the other, a manager gives up, and is right.
        workers = [one.pid for one in manager.stats().workers if one.pid and (one.tasks or chance.random() < 0.3)]
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


def test_slow_workers_are_not_waited_for_if_others_have_nothing_to_do(package: Package, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    found = package.run(
        HEAD
        + f"""
import contextlib, random
import gambeson

def slow_once(x):
    time.sleep(0.005)
    try:
        os.close(os.open(f"begun-{{x}}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return x, "second"
    if x == 20 or x == 120:
        until = time.monotonic() + (30 if x == 20 else 0)
        while time.monotonic() < until:
            time.sleep(0.01)
        if x == 120:
            # In one piece: this worker does not leave off.
            time.sleep(30)
    return x, "first"

with farm.Manager(slow_once, parallelism=2, chunk=1, speculate=True) as manager:
    manager.wait_for_workers()
    found = []
    for first in 0, 100:
        began = time.monotonic()
        results = dict(manager.run(range(first, first + 40)))
        found.append([time.monotonic() - began, sorted(results) == list(range(first, first + 40)), results[first + 20]])
    found.append(manager.stats().speculated)

def sometimes(x):
    # Whoever computes it anew may be faster, or as slow: the two end at about the same time, or one after the other.
    chance = random.Random(x * 1000 + os.getpid())
    time.sleep(chance.choice([0.001] * 9 + [chance.random()]))
    return x * x

chance, ends = random.Random({seed}), threading.Event()
def kill(manager):
    while not ends.wait(chance.random()):
        pids = [worker.pid for worker in manager.stats().workers if worker.pid]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)

with farm.Manager(farm.map(sometimes), parallelism=3, chunk=1, attempts=50, speculate=True) as manager:
    threading.Thread(target=kill, args=(manager,), daemon=True).start()
    mapped = manager.compute([range(at, at + 10) for at in range(0, 400, 10)])
    ends.set()
    right = mapped == [[x * x for x in range(at, at + 10)] for at in range(0, 400, 10)]
    found.append([right, manager.stats().speculated])
with gambeson.Executor(3, speculate=True) as executor:
    futures = [executor.submit(sometimes, x) for x in range(300)]
    called = [future.result() for future in futures] == [x * x for x in range(300)]
    found.append([called, executor.farm.stats().speculated])
print(json.dumps(found))
""",
        tmp_path,
    )
    left, stuck, speculated, mapped, called = found
    for took, right, who in (left, stuck):
        assert took < 15 and right and who == "second", found
    assert speculated >= 2
    assert mapped[0] and called[0], f"seed {seed}: {found}"
    assert mapped[1] and called[1], found
