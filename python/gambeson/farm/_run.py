"""What a worker does with a token: applies a stage's functions to its items."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from gambeson.farm._protocol import Mode

Functions = tuple[Callable[..., Any], ...]
Failures = dict[int, "Described"]

Described = tuple[str, str, bytes | None]
"""An exception: its type and sentence, its traceback, and itself, pickled, if it can be and may."""


class Cancelled(BaseException):
    """The manager wants the task that runs no more. It is raised in it from outside."""


def run(mode: Mode, functions: Functions, items: list[Any], only: Sequence[int] | None) -> tuple[Any, Failures]:
    """Runs the stage; the list of results, and what failed."""
    failures: Failures = {}
    if mode is Mode.EACH and inspect.iscoroutinefunction(functions[0]):
        return asyncio.run(_await_each(functions, items, only, failures)), failures
    if mode in (Mode.EACH, Mode.CALL):
        return _each(_called if mode is Mode.CALL else None, functions, items, only, failures), failures
    function = functions[0]
    try:
        match mode:
            case Mode.FOLD:
                return [functools.reduce(function, items)], failures
            case Mode.SCAN:
                return [list(itertools.accumulate(items, function))], failures
            case Mode.SHIFT:
                return [[function(offset, one) for one in each] for offset, each in items], failures
            case Mode.TEST:
                return bool(function(items[0])), failures
    except Exception as error:
        failures[0] = described(error)
    return [None], failures


def _called(function: Callable[..., Any], item: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    return function(*item[0], **item[1])


def _each(
    call: Callable[..., Any] | None,
    functions: Functions,
    items: list[Any],
    only: Sequence[int] | None,
    failures: Failures,
) -> list[Any]:
    chosen = range(len(items)) if only is None else only
    results: list[Any] = [None] * len(items)
    first = functions[0] if len(functions) == 1 and call is None else None
    for at in chosen:
        try:
            item = items[at]
            if first is not None:
                item = first(item)
            elif call is not None:
                item = call(functions[0], item)
            else:
                for function in functions:
                    item = function(item)
            results[at] = item
        except (Exception, SystemExit) as error:
            failures[at] = described(error)
    return results


async def _await_each(
    functions: Functions, items: list[Any], only: Sequence[int] | None, failures: Failures
) -> list[Any]:
    results: list[Any] = [None] * len(items)

    async def one(at: int) -> None:
        try:
            item = items[at]
            for function in functions:
                item = await function(item)
            results[at] = item
        except (Exception, SystemExit) as error:
            failures[at] = described(error)

    await asyncio.gather(*(one(at) for at in (range(len(items)) if only is None else only)))
    return results


def described(error: BaseException) -> Described:
    """An exception, as it is sent; the frames of this module are nobody's business."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    pickled: bytes | None
    try:
        pickled = _pickled(error)
        # Exceptions whose arguments are not those of their class pickle, and never come back.
        pickle.loads(pickled)
    except Exception:
        pickled = None
    return f"{type(error).__name__}: {error}", text, pickled


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        if b"__main__" not in pickled:
            return pickled
    except (pickle.PicklingError, AttributeError):
        pass
    # Of a class that the program itself defines.
    by_value: bytes = cloudpickle.dumps(error)
    return by_value
