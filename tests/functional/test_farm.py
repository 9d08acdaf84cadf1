"""gambeson.farm from an installed wheel, with workers on this host: programs, their results, and code."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from conftest import unavailable
from harness.farms import HEAD
from harness.mpis import ROOT
from harness.python import Package


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
    (entry,), (foreign,) = manager._pool.staging.program.values(), other._pool.staging.program.values()
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
