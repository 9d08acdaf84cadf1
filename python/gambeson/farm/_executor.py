"""A farm as an executor, for programs and libraries that want one (PEP 3148)."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from gambeson.farm._manager import Manager
from gambeson.farm._protocol import Mode
from gambeson.farm._security import Security
from gambeson.farm._skeleton import Stage
from gambeson.farm._task import Staged, Task
from gambeson.farm._token import NO_LABELS, Token

P = ParamSpec("P")
T = TypeVar("T")

KEPT = 128
"""Functions whose code stays staged while nobody calls them."""


def _apply(callable_: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The stage of callables that are no functions: they are data."""
    return callable_(*args, **kwargs)


class Executor(futures.Executor):
    """Runs functions on a farm's workers, over sealed links: a `concurrent.futures.Executor`.

    `max_workers` is the farm's parallelism, and the options are those of `gambeson.farm.Manager`. What a function was
    annotated with counts as for a stage. A task that ended `attempts` workers raises `PoisonedTask`, and the others go
    on.
    """

    def __init__(self, max_workers: int | None = None, **options: Any) -> None:
        self._manager: Manager[Any, Any] = Manager(_apply, parallelism=max_workers, **options)
        self._stages: dict[Any, Staged] = {}
        """Functions that were called, those last that were last."""
        self._pending: set[_Waiting] = set()
        self._shut = False
        self._settled = threading.Condition()

    @property
    def farm(self) -> Manager[Any, Any]:
        """The farm behind it, for `explain` and `stats`."""
        return self._manager

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Runs a function; a future of its result."""
        return self._submit(fn, [(args, kwargs)], _first, NO_LABELS)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 0
    ) -> Iterator[T]:
        """As the built-in `map`: results in order, computed at the same time.

        `timeout` is in seconds, from now on. `chunksize` is how many calls go to a worker together: without it, as many
        as make it worth while, and calls that follow one another go there together, too.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        calls: list[Any] = [(arguments, {}) for arguments in zip(*iterables, strict=False)]
        if chunksize < 1:
            chunksize = max(1, min(1024, len(calls) // (16 * self._manager.parallelism)))
        chunks = [calls[at : at + chunksize] for at in range(0, len(calls), chunksize)]
        pending = [self._submit(fn, chunk, list, NO_LABELS) for chunk in chunks]

        def results() -> Iterator[T]:
            try:
                for future in pending:
                    yield from future.result(None if deadline is None else deadline - time.monotonic())
            finally:
                for future in pending:
                    future.cancel()

        return results()

    def _submit(
        self, fn: Callable[..., Any], calls: list[Any], made: Callable[[list[Any]], Any], labels: frozenset[str]
    ) -> futures.Future[Any]:
        manager = self._manager
        if not isinstance(fn, (types.FunctionType, types.BuiltinFunctionType, type)):
            calls = [((fn, *args), kwargs) for args, kwargs in calls]
            fn = _apply
        token = Token.of(calls, labels)
        future: futures.Future[Any] = futures.Future()
        with manager._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            manager._check()
            waiting = _Waiting(self, future, made)
            waiting.task = manager._pool.submit(None, self._stage(fn), Mode.CALL, token, waiting, 0)
            self._pending.add(waiting)
            manager._pool.dispatch()
        manager._tell()
        future.add_done_callback(lambda future: self._forget(waiting) if future.cancelled() else None)
        return future

    def _stage(self, fn: Callable[..., Any]) -> Staged:
        """A function's stage; the same one for functions that are made anew each time of the same code."""
        found = self._stages.pop(fn, None)
        self._stages[fn] = found = found or self._manager._pool.staging.call(Stage(fn))
        if len(self._stages) > KEPT:
            del self._stages[next(iter(self._stages))]
        return found

    def _forget(self, waiting: _Waiting) -> None:
        """A future was cancelled: unless a worker has its task, nobody gets it."""
        with self._manager._lock:
            task = waiting.task
            if task is not None and self._manager._pool.forget(task):
                self._settle(waiting)

    def cancel(self, future: futures.Future[Any]) -> bool:
        """Cancels a call of this executor's as `future.cancel()` does, and one that a worker is at, too: that leaves it
        off, or is ended. False if it is done.
        """
        if not future.cancel():
            return False
        # Those that no worker has are gone by now.
        for waiting in [one for one in list(self._pending) if one.future is future]:
            self._manager._pool.cancel(waiting)
            self._manager._wake()
            self._settle(waiting)
        return True

    def protect(self, security: Security) -> None:
        """Has other rules hold from now on: `gambeson.farm.Manager.protect`."""
        self._manager.protect(security)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes nothing more. With `wait` it returns when all is done, with `cancel_futures` without what no worker
        has.
        """
        with self._manager._lock:
            self._shut = True
            pending = list(self._pending)
        if cancel_futures:
            for waiting in pending:
                waiting.future.cancel()
        if wait:
            with self._settled:
                self._settled.wait_for(lambda: not self._pending or self._manager._closed)
            self._manager.close()
        else:
            threading.Thread(target=self.shutdown, daemon=True).start()

    def _settle(self, waiting: _Waiting) -> None:
        # Its future may be kept for long.
        waiting.task = None
        with self._settled:
            self._pending.discard(waiting)
            if not self._pending:
                self._settled.notify_all()


def _first(values: list[Any]) -> Any:
    return values[0]


class _Waiting:
    """A future, as the frame that its task comes back to."""

    def __init__(self, executor: Executor, future: futures.Future[Any], made: Callable[[list[Any]], Any]) -> None:
        self.executor = executor
        self.future = future
        self.made = made
        self.task: Task | None = None

    @property
    def run(self) -> _Waiting:
        """Each call is a run of its own."""
        return self

    def deliver(self, token: Token, at: int) -> None:
        """The task has come back. Under the farm's lock, which nobody needs who is told of it."""
        self.executor._manager._settled.append(lambda: self._settle(token))

    def _settle(self, token: Token) -> None:
        self.executor._settle(self)
        if not self.future.set_running_or_notify_cancel():
            return
        items, failures = token.outcomes()
        if failures:
            self.future.set_exception(next(iter(failures.values())).error)
        else:
            self.future.set_result(self.made(items))
