"""Experiments: what is simulated."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from gambeson import _native, _progress
from gambeson._progress import Progress
from gambeson.sim import _toml
from gambeson.sim._outcome import Outcome


class Experiment:
    """An experiment: topology, links, security in the adapters, filters in the switches, and traffic or recorded jobs.

    `load` makes one. It does not change; `with_values` makes another. Files that it names are looked for beside its
    own, those that changes, texts and dicts name in the current folder.
    """

    def __init__(self, text: str, path: str | None = None, changes: tuple[str, ...] = ()) -> None:
        """Experiment's TOML, the file it came from, for messages, and other values for some keys, `KEY=VALUE` each.

        Raises `ExperimentError` when it cannot be understood.
        """
        self._source = (text, path, list(changes))
        self._json = _native.complete(*self._source)

    @property
    def values(self) -> dict[str, Any]:
        """All its keys, with the defaults of those that were not given."""
        values: dict[str, Any] = json.loads(self._json)
        return values

    @property
    def name(self) -> str:
        """What reports call it."""
        return str(self.values["name"])

    @property
    def seed(self) -> int:
        """Where all random numbers come from."""
        return int(self.values["seed"])

    def with_values(self, changes: Mapping[str, object]) -> Experiment:
        """The same with other values for some keys: `{"traffic.0.load": 0.5, "fabric.rate": "4x-ndr"}`.

        Numbers in a key count the entries of a list. A string is read as on the command line: TOML, or else a string.
        """
        text, path, before = self._source
        return Experiment(text, path, (*before, *_toml.changes(changes)))

    def run(self, *, progress: bool | Progress = False) -> Outcome:
        """Carries it out, without Python's lock; Ctrl-C ends it.

        `progress` is called ten times a second with the microseconds simulated so far and those there will be (None in
        a replay, which ends when its jobs do); True shows a bar, if tqdm is installed. What it raises ends the run.

        Raises `ExperimentError`, `TraceError`, `StuckError`, or `OSError` for a trace that cannot be read.
        """
        values = self.values
        measure = values["measure"]
        total = None if values["replay"] else measure["warmup_us"] + measure["for_us"]
        with _progress.told(progress, "us") as tell:
            return Outcome.of(_native.run(*self._source, lambda us: tell(us, total)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        return f"<Experiment {self.name!r}, seed {self.seed}>"

    def __reduce__(self) -> tuple[type[Experiment], tuple[str, str | None, tuple[str, ...]]]:
        text, path, changes = self._source
        return Experiment, (text, path, tuple(changes))


Source: TypeAlias = Experiment | str | os.PathLike[str] | Mapping[str, object]
"""What an experiment is made of: itself, a TOML file's path, TOML text (which has several lines), or a dict."""


def load(source: Source) -> Experiment:
    """Makes an experiment of a TOML file's path, of TOML text, or of a dict.

    A string without a line break is a path. In a dict None stands for a key that is not there, so that
    `outcome.experiment` can be loaded again.

    Raises `ExperimentError` with file and line, or `OSError` for a file that cannot be read.
    """
    match source:
        case Experiment():
            return source
        case Mapping():
            return Experiment(_toml.document(source))
        case str() if "\n" in source:
            return Experiment(source)
        case str() | os.PathLike():
            path = os.fspath(source)
            return Experiment(_native.read(path), path)
        case _:
            raise TypeError(f"an experiment is a path, TOML text or a dict, not {type(source).__name__}")
