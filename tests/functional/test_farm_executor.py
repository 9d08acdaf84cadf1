"""gambeson.Executor, and joblib over it."""

from __future__ import annotations

from pathlib import Path

from harness.farms import HEAD
from harness.python import Package


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


def test_code_that_is_called_no_more_is_forgotten_by_manager_and_workers(package: Package, tmp_path: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson

def staged(_):
    import gc
    from gambeson.farm import worker
    interpreter, = [one for one in gc.get_objects() if isinstance(one, worker.Interpreter)]
    time.sleep(0.05)
    return len(interpreter._stages), os.getpid()

def lambdas(executor, count):
    return [executor.submit(lambda x=x: x).result() for x in range(count)] == list(range(count))

with gambeson.Executor(2) as executor:
    executor.farm.wait_for_workers()
    first = lambda: "first"
    assert executor.submit(first).result() == "first"
    right = lambdas(executor, 2000)
    many = [executor.submit(lambda x=x: [time.sleep(5e-3), x][1]) for x in range(300)]
    # Those that wait are kept, however many they are.
    kept = len(executor.farm.stats().stages)
    right = right and [future.result() for future in many] == list(range(300))
    again = executor.submit(first).result()
    by_worker = {pid: count for count, pid in executor.map(staged, range(20), chunksize=1)}
    print(json.dumps([right, kept, again, by_worker, len(executor.farm.stats().stages), len(executor.farm.hashes)]))
""",
        tmp_path,
    )
    right, kept, again, by_worker, stages, hashes = found
    assert right and kept > 200 and again == "first"
    # What nobody calls any more is kept for 128 functions, and those that are called.
    assert by_worker and all(count < 140 for count in by_worker.values()) and stages < 140 and hashes < 140, found


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
