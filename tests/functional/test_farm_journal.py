"""Journals of gambeson.farm: programs that are killed and run again, what the file tells, and what is refused."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness.python import Package

HEAD = """
import dataclasses, json, logging, os, random, sys, threading, time
from gambeson import farm
logging.basicConfig(level=logging.WARNING)

def journal(path="run.journal", label="study", **options):
    return farm.Journal(path, label=label, keys="keys", **options)

def add(a, b): return a + b
"""


@pytest.fixture
def home(gambeson: Path, tmp_path: Path) -> Path:
    """A folder with a key store in it, which has the labels study and other."""
    for words in (["init", "--key-file"], ["create", "study"], ["create", "other"]):
        key(gambeson, tmp_path / "keys", *words)
    return tmp_path


def key(gambeson: Path, store: Path, *words: str | Path) -> None:
    command = [gambeson, "key", *words, "--store", store]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


KILLED = """
@dataclasses.dataclass
class Sample:
    number: int
    groups: frozenset = frozenset({"north", "south", "east"})

    def parts(self): return [self.number * 10 + at for at in range(6)]

def begun(stage, what):
    # One write, which nobody interrupts: what was begun is known, whoever is killed.
    file = os.open("begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{stage} {what}\\n".encode())
    os.close(file)

def spread(sample):
    begun("spread", sample.number)
    return sample.parts()

def work(part):
    begun("work", part)
    time.sleep(part % 7 * 1e-3)
    return part * 3 + (1 if str(part) in {"11", "23", "oops"} else 0)

def grow(value):
    begun("grow", value)
    return value + 1

def draw(_):
    return random.getrandbits(60)

def program():
    deterministic = farm.pipeline(spread, farm.map(work), farm.reduce(add), farm.iterate(grow, times=3))
    with farm.Manager(deterministic, parallelism=2, journal=journal()) as manager:
        for at, result in enumerate(manager.run(Sample(number) for number in range(60))):
            print(json.dumps(["sum", at, result]), flush=True)
        recalled = manager.stats().recalled
    # Equal items: each has its own result, the same one in each run.
    with farm.Manager(draw, parallelism=2, journal=journal()) as manager:
        for at, result in enumerate(manager.run([None] * 60)):
            print(json.dumps(["draw", at, result]), flush=True)
        print(json.dumps(["end", recalled, manager.stats().recalled]), flush=True)

program()
"""


def expected(number: int) -> int:
    parts = [number * 10 + at for at in range(6)]
    return sum(part * 3 + (str(part) in {"11", "23"}) for part in parts) + 3


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_program_killed_at_random_goes_on_where_it_was(package: Package, home: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    (home / "program.py").write_text(HEAD + KILLED)
    given: dict[tuple[str, int], int] = {}
    most_in_flight, killed, ended = 0, 0, False
    began = Counter[str]()
    while not ended:
        process = package.start("program.py", cwd=home)
        try:
            wait = chance.uniform(0.1, 1.5) if killed < kills else 100
            out, err = process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            # With its workers, which are not told: they end by themselves.
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate(timeout=60)
            killed += 1
        places = {"sum": 0, "draw": 0}
        for line in out.splitlines():
            what, at, result = json.loads(line) if line.endswith("]") else ("cut", 0, 0)
            if what in places:
                assert at == places[what], f"seed {seed}: results come in order, once each"
                places[what] += 1
                assert given.setdefault((what, at), result) == result, f"seed {seed}: {what} {at} is another one now"
            ended = ended or what == "end"
        assert ended or process.returncode == -signal.SIGKILL, f"seed {seed}: {err}"
        # Workers that outlived the manager by a moment.
        time.sleep(0.3)
        now = Counter((home / "begun").read_text().splitlines()) if (home / "begun").exists() else Counter[str]()
        once = now - began
        assert set(once.values()) <= {1}, f"seed {seed}: no task is computed twice in one run"
        most_in_flight = max(most_in_flight, sum(began[task] > 0 for task in once))
        began = now
        if ended and killed < kills:
            # It was quicker than whoever kills it: again from the beginning.
            ended = False
            (home / "run.journal").unlink()
            (home / "begun").unlink()
            began, given = Counter(), {key: value for key, value in given.items() if key[0] == "sum"}
    assert [given["sum", number] for number in range(60)] == [expected(number) for number in range(60)], f"seed {seed}"
    assert len({given["draw", number] for number in range(60)}) == 60, f"seed {seed}"
    # What is computed again is what was under way when it was killed: a few tasks for each of two workers.
    assert most_in_flight <= 2 * 33, f"seed {seed}: {most_in_flight} tasks were computed again after one kill"
    # And with all in the journal nothing is.
    again = package.call(HEAD + KILLED, home)
    assert json.loads(again.stdout.splitlines()[-1]) == ["end", 60 * (1 + 6 + 3) + folds(), 60], f"seed {seed}"
    assert Counter((home / "begun").read_text().splitlines()) == began


def folds() -> int:
    """Tasks of the 60 reductions: six elements for two workers are three chunks, which make one level more, or two."""
    return 60 * (3 + 2 + 1)


EDITED = """
import helping
limit = {limit}
table = {table}

class Scale:
    factor = {factor}
    def of(self, x): return x * self.factor

def helper(x): return x + {offset}

def first(x): return {first}

def second(x):
    if str(x) in {{"1", "2", "nothing"}}:
        return helper(x) + limit + table["k"]
    return Scale().of(helper(x)) + helping.more(x)

with farm.Manager(farm.pipeline(first, farm.map(second)), parallelism=2, journal=journal()) as manager:
    results = manager.compute(range(10))
    print(json.dumps([results, manager.stats().recalled]))
"""
AS_WRITTEN: dict[str, Any] = {
    "limit": 10, "table": '{"k": 1, "l": 2}', "factor": 3, "offset": 1, "first": "[x, x + 1]", "helping": 1
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "recalled"),
    [
        ({}, 30),
        ({"limit": 11}, 10),
        ({"table": '{"k": 2, "l": 2}'}, 10),
        ({"factor": 4}, 10),
        ({"offset": 2}, 10),
        ({"helping": 2}, 10),
        # What the first stage makes of nine items in ten is what it was: their elements are found.
        ({"first": "[x, x + 1] if x != 4 else [x, 70]"}, 19),
    ],
)
def test_what_was_edited_is_computed_again_and_nothing_else(
    package: Package, home: Path, change: dict[str, Any], recalled: int
) -> None:
    def run(**values: Any) -> Any:
        (home / "helping.py").write_text("import helping_too\ndef more(x): return helping_too.most(x)\n")
        (home / "helping_too.py").write_text(f"def most(x): return {values.pop('helping')} * x\n")
        return package.run(HEAD + EDITED.format(**values), home)

    results, none = run(**AS_WRITTEN)
    assert none == 0
    fresh, found = run(**AS_WRITTEN | change)
    assert found == recalled
    assert (fresh != results) == bool(change)
    (home / "run.journal").unlink()
    assert run(**AS_WRITTEN | change) == [fresh, 0]


def test_a_journal_tells_nothing_but_numbers_and_sizes(package: Package, home: Path) -> None:
    found = package.run(
        HEAD
        + """
def reading_the_secret_diary(text): return ["what-comes-of-it"] + [text] * 40

@farm.sensitive_data("inout", label="patients")
def labelled(text): return text

with farm.Manager(farm.pipeline(reading_the_secret_diary, labelled), parallelism=1, journal=journal()) as manager:
    manager.compute(["canary-in-the-input-%d" % number for number in range(50)])
print(json.dumps([os.stat("run.journal").st_mode & 0o777, os.stat("run.journal").st_size]))
""",
        home,
    )
    mode, size = found
    assert mode == 0o600 and size > 50 * 40
    journal = (home / "run.journal").read_bytes()
    for canary in (b"canary", b"what-comes", b"diary", b"labelled", b"patients", b"study", b"builtins", b"program"):
        assert canary not in journal


def refused(
    package: Package, home: Path, program: str = "farm.run(work, range(9), parallelism=1, journal=journal())"
) -> str:
    done = package.call(f"{HEAD}\ndef work(x): return x + 1\nprint({program})\n", home)
    if done.returncode == 0:
        return f"nothing was refused: {done.stdout}"
    # Behind it workers may say that nobody wants them any more.
    raised = [line for line in done.stderr.splitlines() if line.startswith("gambeson.farm._errors.")]
    return raised[-1].removeprefix("gambeson.farm._errors.") if raised else done.stderr


def test_what_is_no_journal_of_ones_own_is_refused_in_a_sentence(package: Package, gambeson: Path, home: Path) -> None:
    run, path = "farm.run(work, range(9), parallelism=1, journal=journal({}))", home / "run.journal"
    assert 'has no label "nobodys"' in refused(package, home, run.format("label='nobodys'"))
    assert path.stat().st_size == 0
    assert refused(package, home).startswith("nothing was refused: [1, 2, 3")
    good = path.read_bytes()
    # An entry whose bytes are others is refused when it is wanted, one whose length or name is at once.
    for at in (len(good) - 1, 90 + 44 + 20):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        said = refused(package, home)
        assert said.startswith("JournalError: the journal run.journal: the entry at byte "), said
        assert "somebody altered it, or the disk is failing" in said
        assert path.stat().st_size == len(good)
    for at in (90 + 3, 90 + 7, 90 + 20):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert "the entry at byte 90 is not what was written there" in refused(package, home)
        assert path.stat().st_size == len(good)
    # Two entries that changed places: each is good, and where the other was.
    first, length = 90 + 44, int.from_bytes(good[90:98], "big")
    second = first + length + 44
    assert int.from_bytes(good[first + length : first + length + 8], "big") == length
    swapped = (
        good[:first] + good[second : second + length] + good[first + length : second] + good[first : first + length]
    )
    path.write_bytes(swapped + good[second + length :])
    assert "is not what was written there" in refused(package, home)
    # What was written in part is cut off, and computed again.
    for cut in (1, 40, 80, len(good) - 90):
        path.write_bytes(good[:-cut])
        assert refused(package, home).startswith("nothing was refused: [1, 2, 3")
        assert path.stat().st_size == len(good)
    path.write_bytes(good + bytes(4096))
    assert refused(package, home).startswith("nothing was refused") and path.read_bytes() == good

    path.write_bytes(good[:9] + b"\2" + good[10:])
    assert "it has format 2, and this Gambeson knows format 1" in refused(package, home)
    path.write_bytes(good[:30] + b"x" + good[31:])
    assert 'was not wrapped by version 1 of label "study"' in refused(package, home)
    path.write_bytes(good)
    assert 'was not wrapped by version 1 of label "other"' in refused(package, home, run.format("label='other'"))
    (home / "notes").write_bytes(b"my notes, which are longer than a journal's first bytes are: " * 3)
    assert "it is no journal of a farm's" in refused(package, home, run.format("'notes'"))
    assert (home / "notes").read_bytes().startswith(b"my notes")
    assert "cannot be opened: Is a directory" in refused(package, home, run.format("'.'"))
    assert "cannot be opened: No such file" in refused(package, home, run.format("'nowhere/run.journal'"))
    assert "it is no file" in refused(package, home, run.format("'/dev/null'"))

    key(gambeson, home / "keys", "expire", "--on", "now", "study")
    assert "expired on" in refused(package, home)
    key(gambeson, home / "keys", "expire", "--on", "never", "study")
    (home / "passphrase").write_text("correct horse battery")
    (home / "passphrase").chmod(0o600)
    key(gambeson, home / "keys", "export", "--read-only", "--export-passphrase-file", home / "passphrase",
        home / "for-bob.keys", "study")  # fmt: skip
    key(gambeson, home / "bob", "init", "--passphrase-file", home / "passphrase")
    key(gambeson, home / "bob", "import", "--passphrase-file", home / "passphrase",
        "--export-passphrase-file", home / "passphrase", home / "for-bob.keys")  # fmt: skip
    theirs = "farm.run(work, range(9), journal=farm.Journal('run.journal', label='study', keys='bob'{}))"
    assert "the keys of bob are locked" in refused(package, home, theirs.format(""))
    assert "the passphrase is not that of" in refused(package, home, theirs.format(", passphrase='wrong one, this'"))
    said = refused(package, home, theirs.format(", passphrase='correct horse battery'"))
    assert 'holds label "study" for reading alone' in said
    assert path.read_bytes() == good


def test_two_farms_do_not_go_on_with_one_journal(package: Package, home: Path) -> None:
    found = package.run(
        HEAD
        + """
import subprocess
def work(x): return x + 1
def refused(*arguments):
    try:
        farm.run(work, [1], parallelism=1, journal=journal())
    except farm.JournalError as error:
        return str(error)

if len(sys.argv) > 1:
    print(json.dumps(refused()))
    sys.exit()
with farm.Manager(work, parallelism=1, journal=journal()):
    told = [refused(), json.loads(subprocess.run([sys.executable, __file__, "again"], capture_output=True).stdout)]
# Nor does one that was not opened keep it.
try:
    farm.Manager(lambda x: threading.Lock(), parallelism=1, journal=journal(), identity="nowhere.pem")
except FileNotFoundError:
    pass
# One after the other, while workers of the one before are still being started.
print(json.dumps([told, [refused() for _ in range(10)]]))
""",
        home,
    )
    told, after = found
    assert all("another farm goes on with it right now" in sentence for sentence in told) and len(told) == 2
    assert after == [None] * 10


def test_futures_of_a_farm_whose_journal_fails_are_settled(package: Package, home: Path) -> None:
    found = package.run(
        HEAD
        + """
import gambeson, resource
from gambeson.farm import _journal

def work(x): return bytes(3000) + bytes([x])

def settled():
    with gambeson.Executor(2, journal=journal()) as executor:
        futures = [executor.submit(work, x) for x in range(30)]
        return [str(future.exception(60)) for future in futures]

resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
full = settled()
# As another process would, which has not asked for these before.
_journal._counted.clear()
with open("run.journal", "r+b") as file:
    file.seek(90 + 3 * 3100)
    file.write(b"altered")
print(json.dumps([full, settled()]))
""",
        home,
    )
    full, altered = found
    assert full[-1] != "None" and {sentence.partition("it has")[0] for sentence in full} <= {
        "None", "the journal run.journal: a result cannot be written: File too large; what "
    }  # fmt: skip
    assert altered[-1] != "None" and all(
        sentence == "None" or "is not what was written there" in sentence for sentence in altered
    )


def test_a_full_disk_ends_the_run_and_leaves_the_journal_good(package: Package, home: Path) -> None:
    program = (
        HEAD
        + """
import resource
def work(x): return bytes(5000) + x.to_bytes(4, "big")
if not os.path.exists("roomy"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
got = 0
try:
    with farm.Manager(work, parallelism=2, journal=journal()) as manager:
        for at, result in enumerate(manager.run(range(40))):
            assert result == bytes(5000) + at.to_bytes(4, "big")
            got += 1
    print(json.dumps(["done", got, manager.stats().recalled]))
except farm.JournalError as error:
    print(json.dumps([str(error), got, 0]))
"""
    )
    sentence, got, _ = package.run(program, home)
    assert "the journal run.journal: a result cannot be written: File too large; what it has stays good" in sentence
    assert got < 40
    (home / "roomy").touch()
    assert package.run(program, home) == ["done", 40, 11]
    assert package.run(program, home) == ["done", 40, 40]


def test_failures_are_tried_again_and_what_was_verified_is_kept(package: Package, home: Path) -> None:
    program = (
        HEAD
        + """
import gambeson
def fails(x):
    if x % 3 == 0 and not os.path.exists("mended"):
        raise ValueError(x)
    return x

def outcomes(results): return [None if isinstance(r, farm.Failure) else r for r in results]

found = []
for options in {}, {"verify": 1.0}, {"chunk": 4}, {"retries": 1}:
    name = "-".join(options) or "plain"
    with farm.Manager(fails, parallelism=2, journal=journal(name), **options) as manager:
        found.append([outcomes(manager.compute(range(12), errors="return")), manager.stats().recalled])
with gambeson.Executor(2, journal=journal("executor")) as executor:
    futures = [executor.submit(fails, x) for x in range(9)] + [executor.submit(lambda: 5)]
    futures.append(executor.submit(divmod, 7, 0))
    kept = [future.result() if future.exception() is None else None for future in futures]
    mapped = list(executor.map(add, range(20), range(20)))
    found.append([kept, executor.farm.stats().recalled, mapped])

looped = []
looped.append(looped)
never = os.urandom(4)
def uses(x): return len(looped) + x + len(never)
with farm.Manager(uses, parallelism=1, journal=journal("never")) as manager:
    found.append([manager.compute([1]), manager.stats().recalled])
out = sys.stdout
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("gambeson.farm").addHandler(handler)
def prints(x):
    out.write("")
    return x
with farm.Manager(prints, parallelism=1, journal=journal("prints")) as manager:
    found.append([manager.compute([1, 2]), manager.stats().recalled, said, os.path.getsize("prints")])
print(json.dumps(found))
"""
    )
    whole, some = list(range(12)), [x if x % 3 else None for x in range(12)]
    first = package.run(program, home)
    assert [outcome for outcome, _ in first[:4]] == [some] * 4 and not any(recalled for _, recalled, *_ in first)
    assert first[4][0] == [None if x % 3 == 0 else x for x in range(9)] + [5, None]
    (home / "mended").touch()
    second = package.run(program, home)
    # Of chunks in which one failed all are computed again.
    assert second[:4] == [[whole, 8], [whole, 8], [whole, 0], [whole, 8]]
    assert second[4] == [[*range(9), 5, None], 6 + 1 + 20, [2 * x for x in range(20)]]
    # What is another one in each run is not found; what cannot be compared is not even kept.
    assert second[5] == [[6], 0]
    results, recalled, (sentence,), size = second[6]
    assert (results, recalled, size) == ([1, 2], 0, 90)
    assert sentence.startswith(
        "stage 'prints' is computed again in each run, since nobody can tell whether it is the same"
    )


def test_fingerprints_tell_what_differs_and_nothing_else(package: Package, tmp_path: Path) -> None:
    program = """
import abc, collections, dataclasses, enum, functools, json, math, operator, os, sys, typing
import numpy
from gambeson import farm
from gambeson.farm._fingerprint import Fingerprints
from gambeson.farm._token import Token

class Color(enum.Enum):
    RED = 1
    BLUE = "b"
class Named(typing.NamedTuple):
    x: int
    y: str = "z"
Pair = collections.namedtuple("Pair", "a b")
@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    x: int = 3
    names: frozenset = frozenset({"p", "q", "r", "s"})
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class Derived(Base):
    @property
    def p(self): return 1
    @staticmethod
    def s(x): return {"a", "b", "c"}
    @classmethod
    def c(cls): return cls
    def f(self): return self.g()
    def g(self): return super().f()

@functools.lru_cache
def cached(x): return x in {"one", "two", "three"}
def recursive(n): return n and recursive(n - 1)
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
def closing(y): return lambda x: x + y
def defaults(x, y=("a", {"b", "c"}), *, z=Data()): return x
def importing(x):
    import math, numpy.linalg
    return math.pi
async def later(x): return [y async for y in x]
@farm.sensitive_code
def marked(x): return x
array = numpy.arange(5)
def uses(x): return array, Color.RED, Named(1), Pair(1, 2), Derived, math.sin, numpy.add, operator.itemgetter(1)

functions = [cached, recursive, even, closing(1), closing(2), defaults, importing, later, marked, uses, Derived().f,
             functools.partial(defaults, y=2), len, numpy.sum, Data, str.upper, math.sin, json.dumps]
items = [1, "x", {"k": [1.5, None]}, numpy.ones(3), numpy.float32(2), Data(), Named(1), Pair(1, 2), Color.BLUE,
         closing(3), Derived, {"deep": [Data(5)]}, {Data(1), Data(2)}]
prints = Fingerprints()
found = [prints.of([one]).hex() for one in functions] + [prints.of_token(Token.of([item])).hex() for item in items]
again = Fingerprints()
assert found == ([again.of([one]).hex() for one in functions] + [again.of_token(Token.of([i])).hex() for i in items])
# As a worker sends it back, or the manager pickles it a second time.
for item in items:
    once = Token.of(Token.of([item]).items())
    assert prints.of_token(once) == prints.of_token(Token.of([item])), item
print(json.dumps(found))
"""
    runs = [package.run(program, tmp_path) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == len(runs[0])
    changes = {
        '"two", "three"': '"two", "four"', "n and recursive(n - 1)": "n and recursive(n - 2)",
        "return n != 0 and even": "return n != 1 and even", "return lambda x: x + y": "return lambda x: x - y",
        '{"b", "c"}), *, z': '{"b", "d"}), *, z', "return math.pi": "return math.e", "y async for": "-y async for",
        "def p(self): return 1": "def p(self): return 2", 'return {"a", "b", "c"}': 'return {"a", "b", "d"}',
        "def g(self): return super().f()": "def g(self): return None", "x: int = 3": "x: int = 4",
        'BLUE = "b"': 'BLUE = "c"', "arange(5)": "arange(6)", "return cls": "return None",
    }  # fmt: skip
    for before, after in changes.items():
        assert program.count(before) == 1, before
        other = package.run(program.replace(before, after), tmp_path)
        differ = [at for at, (one, two) in enumerate(zip(runs[0], other, strict=True)) if one != two]
        assert 0 < len(differ) <= 13, (before, differ)
    # Comments, and functions that nobody names, are nothing.
    edited = program.replace("async def later", "# A comment.\ndef unrelated(x): return 9\n\nasync def later")
    assert package.run(edited, tmp_path) == runs[0]
    assert re.fullmatch("[0-9a-f]{64}", runs[0][0])
