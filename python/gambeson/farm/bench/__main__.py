"""The command: `gambeson bench farm`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gambeson import _native
from gambeson._progress import told
from gambeson.farm._errors import FarmError
from gambeson.farm.bench import _peers
from gambeson.farm.bench._bandwidth import bandwidth
from gambeson.farm.bench._bench import SIDES, Bench
from gambeson.farm.bench._figure import Figure
from gambeson.farm.bench._pictures import draw
from gambeson.farm.bench._proxy import PARTNERS, proxy
from gambeson.farm.bench._serialisation import TURNS, serialisation
from gambeson.farm.bench._site import site
from gambeson.farm.bench._speedup import iso_grain, share, shares, speedup

BUSY = 0.5
"""Above this load average a measurement competes with something else."""
UNAVAILABLE, SYSTEM, INTERRUPTED, READER_LEFT = 69, 71, 130, 141
"""Exit statuses, as the command line has them."""

FIGURES: dict[str, Callable[[Bench], Figure]] = {
    "speedup": speedup,
    "bandwidth": bandwidth,
    "iso-grain": iso_grain,
    "share": share,
    "serialisation": serialisation,
    "proxy": proxy,
}
PEERS = "peers"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The options; `gambeson bench farm --help` describes them."""
    parser = argparse.ArgumentParser(
        prog="python -m gambeson.farm.bench", description="See gambeson bench farm --help."
    )
    parser.add_argument("--only", nargs="+", choices=[*FIGURES, PEERS], default=list(FIGURES))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--gambeson", default=shutil.which("gambeson"))
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints, writes and draws."""
    options = parsed(arguments)
    try:
        return carry_out(options)
    except BrokenPipeError:
        # What is still to be printed has nobody, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return READER_LEFT
    except (OSError, FarmError) as error:
        complain(str(error))
        return SYSTEM
    except KeyboardInterrupt:
        return INTERRUPTED


def carry_out(options: argparse.Namespace) -> int:
    """The exit status."""
    load = os.getloadavg()
    if load[0] > BUSY:
        complain(f"this machine is busy (load average {load[0]:.2f} over the last minute): the values will scatter")
    # What cannot be written is said before anything is measured.
    if options.json is not None:
        options.json.touch()
    can_draw = True
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
        can_draw = _can_draw()
    if not can_draw:
        complain("pictures take matplotlib, which is missing (python -m pip install matplotlib): there will be tables")
    report: dict[str, Any] = {
        "gambeson": _native.VERSION,
        "python": platform.python_version(),
        "processors": len(os.sched_getaffinity(0)),
        "load": load,
        "rounds": options.rounds,
        "seed": options.seed,
        "quick": options.quick,
    }
    figures = measured(options, report)
    report["figures"] = [figure.record() for figure in figures]
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.pictures is not None and can_draw:
        for figure in figures:
            draw(figure, options.pictures)
    return 0 if can_draw else UNAVAILABLE


def measured(options: argparse.Namespace, report: dict[str, Any]) -> list[Figure]:
    """The figures that are wanted; each is printed when it is there."""
    turns = sum(turns_of(name, options.workers) for name in options.only) * options.rounds
    figures: list[Figure] = []
    with told(True, " turns") as tell, tempfile.TemporaryDirectory() as folder:
        done = itertools.count(1)
        tell(0, turns)

        def step() -> None:
            tell(next(done), turns)

        if PEERS in options.only:
            report[PEERS] = values = _peers.measure(options.rounds, options.quick, step)
            print(_peers.table(values), end="\n\n", flush=True)
        wanted = [name for name in FIGURES if name in options.only]
        if not wanted:
            return []
        with site(options.workers, options.local) as place:
            report["site"] = place.told
            bench = Bench(
                site=place,
                workers=options.workers,
                rounds=options.rounds,
                quick=options.quick,
                seed=options.seed,
                gambeson=options.gambeson,
                folder=Path(folder),
                step=step,
            )
            for name in wanted:
                figures.append(FIGURES[name](bench))
                print(figures[-1].text(), end="\n\n", flush=True)
    return figures


def complain(what: str) -> None:
    """Says something beside the tables."""
    print(f"gambeson: {what}", file=sys.stderr)


def turns_of(name: str, workers: int) -> int:
    """How many turns a round has."""
    several = {
        "share": len(shares(workers)),
        "serialisation": len(TURNS),
        "proxy": len(PARTNERS),
        PEERS: len(_peers.SYSTEMS),
    }
    return several.get(name, len(SIDES))


def _can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
