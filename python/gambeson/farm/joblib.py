"""joblib over a farm: `gambeson.farm.joblib.register()`, and then `joblib.parallel_config(backend="gambeson",
n_jobs=10)`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from concurrent import futures
from typing import Any

import joblib
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

from gambeson.farm._annotation import SENSITIVE, marks
from gambeson.farm._executor import Executor, _first
from gambeson.farm._manager import Manager

_OPTIONS = frozenset(inspect.signature(Manager).parameters)


class GambesonBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs joblib's batches on a farm. Its options are those of `gambeson.farm.Manager`, or an `executor` that is
    there.

    Without that, workers are started for each `Parallel`, and for all within one `with Parallel(...)`.
    """

    supports_retrieve_callback = True
    uses_threads = False
    supports_sharedmem = False

    _executor: Executor | None = None
    _own = False

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many workers there are to be; negative numbers count from the number of processors down."""
        given = self.backend_kwargs.get("executor")
        if given is not None:
            return int(given.farm.parallelism)
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(1, len(os.sched_getaffinity(0)) + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Starts the workers."""
        # joblib gives every backend its own options, too, which are about processes that share memory.
        options = {name: value for name, value in options.items() if name in _OPTIONS} | self.backend_kwargs
        n_jobs = self.effective_n_jobs(n_jobs)
        given = options.pop("executor", None)
        self._own = given is None
        self._executor = Executor(n_jobs, **options) if given is None else given
        self.parallel = parallel
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> futures.Future[Any]:
        """Runs a batch. It is as sensitive as the most sensitive function in it."""
        assert self._executor is not None
        labels: frozenset[str] = frozenset()
        for function, _, _ in getattr(func, "items", ()):
            found = marks(function)
            labels |= found.takes | found.gives | (frozenset({SENSITIVE}) if found.code else frozenset())
        future = self._executor._submit(func, [((), {})], _first, labels)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: futures.Future[Any]) -> Any:
        """The results of a batch."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Gives up what is under way."""
        self.terminate()
        if ensure_ready and self._own:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def terminate(self) -> None:
        """Releases the workers, unless they are somebody else's."""
        if self._executor is not None and self._own:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None


def register() -> None:
    """Has joblib know the backend `gambeson`."""
    joblib.register_parallel_backend("gambeson", GambesonBackend)
