"""Sweeps: one experiment under every combination of other values, on any executor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, overload

from gambeson import _progress
from gambeson._native import NativeSweep, StoppedError, run_task
from gambeson._progress import Progress
from gambeson.sim import _toml
from gambeson.sim._experiment import Source, load
from gambeson.sim._outcome import Outcome
from gambeson.sim._table import Table


@dataclass(frozen=True, slots=True)
class Results(Sequence[Outcome]):
    """The outcomes of a sweep: every combination, the last parameter changing fastest and seeds faster still."""

    outcomes: tuple[Outcome, ...] = field(repr=False)
    held: int
    """How many of them the folder had already."""
    folder: Path | None
    """Where results.csv, results.parquet, report.html and a picture of each quantity are."""
    _table: Table

    def table(self) -> Table:
        """A row for each run and flow, with the swept values in front; `Table` has the columns."""
        return self._table

    def __len__(self) -> int:
        return len(self.outcomes)

    @overload
    def __getitem__(self, at: int) -> Outcome: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Outcome, ...]: ...
    def __getitem__(self, at: int | slice) -> Outcome | tuple[Outcome, ...]:
        return self.outcomes[at]


def sweep(
    experiment: Source,
    parameters: Mapping[str, Iterable[object]],
    *,
    repeat: int = 1,
    executor: Executor | None = None,
    jobs: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: bool | Progress = True,
) -> Results:
    """Carries an experiment out under every combination of other values.

    Args:
        experiment: what `load` takes.
        parameters: keys and the values that each takes, `{"security.cache.entries": [4, 8, 16]}`. Values are numbers,
            lists, dicts, or strings as on the command line: TOML, or else a string.
        repeat: runs of each combination, with seeds that follow the experiment's.
        executor: who carries the runs out: `ProcessPoolExecutor`, `mpi4py.futures.MPIPoolExecutor`, Dask's
            `Client.get_executor()` or any other. Workers need the same version of this package, and traces under the
            same paths with the same content. None: threads of this process.
        jobs: how many of those threads; as many as there are cores, when it is not said.
        resume: a folder that keeps results. What it holds already is not run again, whoever began: `gambeson sim sweep
            --out` writes the same folder. None: nothing is written.
        progress: a function that hears after each run how many are done, and of how many; True: a bar, if tqdm is
            installed.

    Returns:
        All outcomes, in an order that depends on nothing else.

    Raises:
        ExperimentError, TraceError, StuckError: what is wrong, with the combination it is wrong in.
        OSError: a trace or the folder.

    After an error or Ctrl-C no run is begun; the folder keeps those that had ended.
    """
    text, path, changes = load(experiment)._source
    over = [(key, [_toml.told(value) for value in values]) for key, values in parameters.items()]
    folder = None if resume is None else os.fspath(resume)
    native = NativeSweep(text, path, changes, over, repeat, folder)
    try:
        missing = native.missing()
        held = len(native) - len(missing)
        with _progress.told(progress, "run") as tell, _submitting(executor, jobs) as submit:
            tell(held, len(native))
            running = {submit(native.task(at), native.told(at)): at for at in missing}
            try:
                for done, future in enumerate(as_completed(running), start=held + 1):
                    native.keep(running[future], future.result())
                    tell(done, len(native))
            finally:
                for future in running:
                    future.cancel()
        outcomes = native.finish()
    finally:
        native.close()
    table = Table(native.table(outcomes))
    return Results(tuple(map(Outcome.of, outcomes)), held, None if folder is None else Path(folder), table)


_Submit: TypeAlias = Callable[[str, str], Future[str]]


@contextmanager
def _submitting(executor: Executor | None, jobs: int | None) -> Iterator[_Submit]:
    """Somebody to carry runs out. Threads of our own end what they are at when the sweep ends early."""
    # Traces' paths begin here, wherever a worker is.
    base = str(Path.cwd())
    if executor is not None:
        yield lambda task, told: executor.submit(run_task, task, told, base, None)
        return
    ended = threading.Event()

    def watch(_us: float) -> None:
        if ended.is_set():
            raise StoppedError("the sweep has ended")

    threads = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)), thread_name_prefix="gambeson-sweep")
    try:
        yield lambda task, told: threads.submit(run_task, task, told, base, watch)
    finally:
        ended.set()
        threads.shutdown(cancel_futures=True)
