"""What workers are told of a task, and what they say of it, of which nothing is believed to be well-formed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gambeson.farm import _plain, _protocol
from gambeson.farm._errors import Failure, FarmError, RemoteError, RemoteTraceback, StageError
from gambeson.farm._protocol import Mode
from gambeson.farm._token import Token, load, not_loaded

if TYPE_CHECKING:
    from gambeson.farm._control import Control
    from gambeson.farm._security import Security
    from gambeson.farm._task import Task


def written(
    control: Control, task: Task, security: Security, largest: int
) -> tuple[int, Sequence[Any], bool] | BaseException:
    """The word and buffers of a task, as a worker takes them, and whether they are sealed; or why it cannot be sent."""
    sealed = control.decide(security, task.marks, task.labels).sealed
    flags = _protocol.SEAL if sealed else 0
    parts = task.token.parts
    if control.plain:
        try:
            parts = _plain.dump(task.token.items())
        except _plain.NotPlain as error:
            what = f"{error}, and {control} takes nothing else: it was pinned to code, and unpickles nothing"
            return StageError(what)
        except Exception as error:
            return not_loaded(error)
        flags |= _protocol.PLAIN
    task.pickled = control.trusted
    if not task.pickled:
        flags |= _protocol.PLAIN_RESULT
    if task.only is not None:
        flags |= _protocol.ONLY
        parts = [*parts, task.only.tobytes()]
    if task.token.size > largest:
        what = (
            f"an item for stage {task.stage.name!r} has {task.token.size} bytes, and {largest} are the most that a "
            "token may have; give it in parts, leave it in a file, or let the farm take more (largest=...)"
        )
        return FarmError(what)
    return _protocol.task_word(task.stage.number, task.mode, flags), parts, sealed


def read(
    task: Task, control: Control, word: int, parts: list[Any], count: int
) -> tuple[Token, dict[int, Failure] | None]:
    """What a task of so many items resulted in; raises what it likes if that is no result."""
    failures = _failures(task, control, parts, count) if word & _protocol.SOME_FAILED else None
    if task.mode is Mode.TEST:
        return Token((), 1 if word & _protocol.YES else 0, task.token.labels), failures
    if task.pickled:
        return Token(parts, count, task.labels_out), failures
    items = _plain.load(parts)
    if type(items) is not list or len(items) != count:
        raise ValueError("another number of items than it was given")
    return Token.of(items, task.labels_out), failures


def _failures(task: Task, control: Control, parts: list[Any], count: int) -> dict[int, Failure]:
    listed = _plain.load([parts.pop(0)])
    failures = {}
    for at, (what, text, pickled) in listed.items():
        if not 0 <= at < count:
            raise ValueError("the failure of an item that it was not given")
        error: BaseException | None = None
        if pickled is not None and task.pickled:
            # Of a class that is not here it comes as text.
            with contextlib.suppress(Exception):
                error = load([pickled])
        if not isinstance(error, BaseException):
            error = RemoteError(f"{what} (worker {control})")
        error.__cause__ = RemoteTraceback(text)
        failures[at] = Failure(error)
    return failures
