#!/usr/bin/env python3
"""Attacks many small jobs, one attack each, and says how each job took it.

    tests/attacks/campaign.py --mpi mpich --count 1000 --start-seed 1 [--json FILE] [--plain] [--kind WORDS]
    tests/attacks/campaign.py --mpi mpich --seed 17          the attack of this seed again, with all output
    tests/attacks/campaign.py --sum FILE...                  what campaigns wrote with --json, as tables for the manual

What a job may do under attack: go on and end correctly (`delivered`), or end with status 70 and a sentence that names
the peer (`ended`). It may not end at all where something was only put into the stream. Everything else is a failure:
wrong data in the program (`wrong data`), no end in time (`hang`), an end without a name (`unnamed`), a crash (`core
crashed` if it is libfabric's and was said), processes left behind. `missed`: the attack found nothing to attack, for
instance since the job had ended before.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import mpis
from harness.jobs import Job, Runner
from harness.mpis import Mpi

from attacks.kinds import KINDS, SURVIVED, Scene
from attacks.proxy import Attack, Recording, Router

HERE = Path(__file__).resolve().parent
GAP_TIMEOUT_S = 3.0
SLACK_S = 17.0
"""Start-up, the launcher's own time to notice and clean up, and a busy machine."""
PLAIN_LIMIT_S = 8.0
PROTECTIONS = ("privacy", "integrity")
GOOD = ("delivered", "ended")
FAILURES = ("wrong data", "hang", "unnamed", "crashed", "core crashed", "left behind", "gave in to garbage")

_PEER = re.compile(
    r"^gambeson: rank (?P<own>\d+) on (?P<where>\S+): .*?\brank (?P<peer>\d+) on host (?P<host>\S+)", re.M
)
_CARD = re.compile(r"^gambeson: rank (?P<own>\d+) on (?P<where>\S+): .*\b(address|card)\b", re.M)
_CORE = re.compile(r"^gambeson: rank \d+ on \S+: libfabric crashed", re.M)
_WATCHED = re.compile(r"deleted|reorder|no authentic|misbehave|version of Gambeson|not usable|lost|refused", re.I)


@dataclass(frozen=True)
class Outcome:
    seed: int
    mpi: str
    ranks: int
    kind: str
    attack: str
    result: str
    status: int
    seconds: float
    said: str
    """Gambeson's last sentences."""
    output: str


class Field:
    """Where jobs are attacked: the compiled preload library, the policy, the undisturbed jobs that were recorded."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        self.runner, self.folder = runner, folder
        self.preload = folder / "redirect.so"
        source = HERE / "redirect.c"
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(self.preload), str(source)]
        subprocess.run([*command, "-ldl"], check=True)
        for protection in PROTECTIONS:
            policy = folder / f"{protection}.toml"
            policy.write_text(f'gap_timeout = "{GAP_TIMEOUT_S:g} s"\nprotection = "{protection}"\n')
            policy.chmod(0o600)
        self.recordings: dict[tuple[str, int], Recording] = {}

    @property
    def limit_s(self) -> float:
        return PLAIN_LIMIT_S if self.runner.plain else GAP_TIMEOUT_S * 2 + SLACK_S

    def run(self, mpi: Mpi, ranks: int, seed: int, router: Router, protection: str = PROTECTIONS[0]) -> Job:
        through: list[str | Path] = [HERE / "through_proxy.sh", str(router.port), self.preload]
        options = [] if self.runner.plain else ["--policy", str(self.folder / f"{protection}.toml")]
        program = [*through, mpi.python, HERE / "victim.py", str(seed)]
        return self.runner.run(mpi, program, n=ranks, options=options, timeout=self.limit_s, cwd=self.folder)

    def record(self, mpi: Mpi, ranks: int) -> Recording:
        """What an undisturbed job sends; the same serves as the earlier job of which the attacker kept everything."""
        known = self.recordings.get((mpi.name, ranks))
        if known is None:
            with Router(record=True) as router:
                job = self.run(mpi, ranks, 0, router)
            if job.timed_out or not correct(job, ranks) or not router.recording or not router.recording.flows:
                raise RuntimeError(f"the undisturbed job on {mpi.name} failed:\n{job.describe()}")
            known = self.recordings[mpi.name, ranks] = router.recording
        return known

    def attack(self, mpi: Mpi, seed: int, kinds: list[str]) -> Outcome:
        rng = random.Random(seed)
        name = kinds[seed % len(kinds)]
        ranks = 3 if rng.random() < 0.4 or name in ("cross", "misdirect", "cards permute", "cards copy") else 2
        protection = rng.choices(PROTECTIONS, [0.7, 0.3])[0]
        attack = KINDS[name](Scene(rng, self.record(mpi, ranks), GAP_TIMEOUT_S))
        with Router(attack) as router:
            job = self.run(mpi, ranks, seed, router, protection)
        return judge(job, seed, mpi.name, ranks, name, attack, self.runner.plain)


def correct(job: Job, ranks: int) -> bool:
    return job.status == 0 and all(f"RIGHT {rank}\n" in job.stdout for rank in range(ranks))


def judge(job: Job, seed: int, mpi: str, ranks: int, name: str, attack: Attack, plain: bool) -> Outcome:
    said = [line for line in job.stderr.splitlines() if line.startswith("gambeson: ")]
    if "WRONG " in job.output:
        result = "wrong data"
    elif job.timed_out:
        result = "hang"
    elif job.survivors:
        result = "left behind"
    elif correct(job, ranks):
        result = "delivered" if attack.applied else "missed"
    elif job.status == 70 and names_peer(job.stderr, name):
        result = "ended"
    elif job.status == 70 and _CORE.search(job.stderr):
        result = "core crashed"
    elif re.search(r"[Ss]egmentation|signal (11|6|7|4)\b|SIGSEGV|Aborted|panicked", job.output):
        result = "crashed"
    else:
        result = "unnamed"
    if result == "ended" and name in SURVIVED and not plain:
        result = "gave in to garbage"
    output = "" if result in (*GOOD, "missed") else job.describe()
    return Outcome(
        seed, mpi, ranks, name, str(attack), result, job.status, round(job.seconds, 2), "\n".join(said[-4:]), output
    )


def names_peer(stderr: str, name: str) -> bool:
    """Whether a rank said which peer, by rank and host, made it stop."""
    if any(_WATCHED.search(match.string[match.start() : match.end() + 300]) for match in _PEER.finditer(stderr)):
        return True
    # Of an address that is not from this job nobody knows whose it was to be.
    return name.startswith("cards") and bool(_CARD.search(stderr))


def chosen_kinds(words: str) -> list[str]:
    kinds = [name for name in sorted(KINDS) if not words or any(word.strip() in name for word in words.split(","))]
    if not kinds:
        raise SystemExit(f"no kind of attack matches {words!r}; there are: {', '.join(sorted(KINDS))}")
    return kinds


def campaign(field: Field, mpi: Mpi, seeds: Iterable[int], kinds: list[str], parallel: int) -> Iterator[Outcome]:
    for ranks in (2, 3):
        field.record(mpi, ranks)
    with ThreadPoolExecutor(parallel) as pool:
        yield from pool.map(lambda seed: field.attack(mpi, seed, kinds), seeds)


def summary(outcomes: list[Outcome]) -> str:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        table[outcome.kind][outcome.result] += 1
    columns = [*GOOD, "missed", *(name for name in FAILURES if any(row[name] for row in table.values()))]
    width = 11
    lines = [f"{'attack':<22}" + "".join(f"{column:>{width}.{width - 1}}" for column in columns)]
    for name, row in sorted(table.items()):
        lines.append(f"{name:<22}" + "".join(f"{row[column] or '':>{width}}" for column in columns))
    total = Counter(outcome.result for outcome in outcomes)
    lines.append(f"{'all':<22}" + "".join(f"{total[column]:>{width}}" for column in columns))
    return "\n".join(lines)


def table_of_all(outcomes: list[Outcome]) -> str:
    """How many attacks of each kind ended how, on each MPI, in Markdown."""
    unique = {(outcome.mpi, outcome.seed): outcome for outcome in outcomes}
    mpi_names = [name for name in mpis.ALL if any(mpi == name for mpi, _ in unique)]
    counts = Counter((o.kind, o.mpi, o.result) for o in unique.values())
    results = [*GOOD, "missed", *(name for name in FAILURES if any(o.result == name for o in unique.values()))]

    def cell(kind: str, mpi: str) -> str:
        found = [counts[kind, mpi, result] for result in results]
        return " / ".join(map(str, found))

    kinds = sorted({o.kind for o in unique.values()})
    lines = [f"Each cell: {' / '.join(results)}.", "", f"| attack | {' | '.join(mpi_names)} |"]
    lines.append("|---|" + "---|" * len(mpi_names))
    lines += [f"| {kind} | {' | '.join(cell(kind, mpi) for mpi in mpi_names)} |" for kind in kinds]
    totals = {mpi: Counter(o.result for o in unique.values() if o.mpi == mpi) for mpi in mpi_names}
    cells = [f"{sum(totals[mpi].values())}: " + " / ".join(str(totals[mpi][r]) for r in results) for mpi in mpi_names]
    lines.append(f"| **all** | {' | '.join(cells)} |")
    return "\n".join(lines)


def replay_command(outcome: Outcome) -> str:
    return f"tests/attacks/campaign.py --mpi {outcome.mpi} --seed {outcome.seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=mpis.ALL)
    parser.add_argument("--sum", type=Path, nargs="+", metavar="FILE", help="only this: add up what --json wrote")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, help="only this one, with all output")
    parser.add_argument(
        "--kind", default="", help="only kinds whose name contains one of these words (changes what a seed means)"
    )
    parser.add_argument("--parallel", type=int, default=2, help="jobs at a time")
    parser.add_argument(
        "--plain", action="store_true", help="without Gambeson: what the attacks do to an unprotected job"
    )
    parser.add_argument("--gambeson", type=Path, default=mpis.ROOT / "target" / "release" / "gambeson")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.sum:
        print(table_of_all([Outcome(**outcome) for file in arguments.sum for outcome in json.loads(file.read_text())]))
        return 0
    if not arguments.mpi:
        parser.error("--mpi or --sum is needed")
    mpi = mpis.find(arguments.mpi)
    kinds = chosen_kinds(arguments.kind)
    single = arguments.seed is not None
    seeds = [arguments.seed] if single else range(arguments.start_seed, arguments.start_seed + arguments.count)
    outcomes: list[Outcome] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        field = Field(Runner(arguments.gambeson, arguments.plain), Path(folder))
        for outcome in campaign(field, mpi, seeds, kinds, arguments.parallel):
            outcomes.append(outcome)
            failed = outcome.result in FAILURES
            if failed and sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr)
            if single or failed:
                line = (
                    f"seed {outcome.seed} ({outcome.ranks} ranks, {outcome.kind}: {outcome.attack}): {outcome.result}"
                )
                print(f"{line}, status {outcome.status}, {outcome.seconds} s", flush=True)
                print(
                    f"    {replay_command(outcome)}" if not single else f"{outcome.said}\n{outcome.output}", flush=True
                )
            if sys.stderr.isatty():
                bad = sum(outcome.result in FAILURES for outcome in outcomes)
                print(f"\r{len(outcomes)} of {len(seeds)} attacks, {bad} failures", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(summary(outcomes))
    where = f"{mpi.name}{', plain,' if arguments.plain else ''}"
    print(f"{len(outcomes)} attacks on {where} in {time.monotonic() - started:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return any(outcome.result in FAILURES for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
