"""Processes that measurements start, and what they say."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class Unavailable(Exception):
    """Something to compare with is not there; a sentence says what."""


@contextlib.contextmanager
def started(command: Sequence[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """A process, as long as it is wanted: the line of JSON that it says, and its number."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        what = f"{command[0]} cannot be started: {error}"
        raise Unavailable(what) from error
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            what = f"{' '.join(command[:3])} ended at once; above it says why"
            raise Unavailable(what)
        yield json.loads(line), process.pid
    finally:
        process.terminate()
        process.communicate()


def echo(*options: str) -> contextlib.AbstractContextManager[tuple[dict[str, Any], int]]:
    """A process that echoes."""
    return started([sys.executable, "-m", "gambeson.farm.bench._echo", *options])


def made(command: Sequence[str]) -> str:
    """What a command says that makes something."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        what = f"{command[0]} does not do what is needed: {error}"
        raise Unavailable(what) from error


def processor_time(other: int) -> float:
    """Seconds of processor time of this process and another one, all threads that there are."""
    tasks = Path(f"/proc/{other}/task").iterdir()
    return time.process_time() + sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
