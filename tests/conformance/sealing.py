"""Suites about files, sealed: a rule has every file sealed that is opened with MPI, in small blocks so that ranks share
many of them.

The key store writes down each sealed file that is closed: a job after which nothing stands there has proved nothing.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.jobs import Job, Runner
from harness.mpis import Mpi, clean_environment

RULES = '[[file]]\npattern = "*"\nlabel = "suite"\nblock = "4 KiB"\n'
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files and keys are: tests of files wait for the disk most of their time."""


@dataclass(frozen=True)
class Sealing(Runner):
    """A runner whose jobs have all files of MPI sealed."""

    folder: Path = Path()

    def run(self, mpi: Mpi, program: Any, **more: Any) -> Job:
        options = ["--policy", str(self.folder / "gambeson.toml"), *more.pop("options", [])]
        return super().run(mpi, program, options=options, env={**(more.pop("env", None) or {}), **self.keys}, **more)

    @property
    def keys(self) -> dict[str, str]:
        return {"GAMBESON_KEYS": str(self.folder / "keys"), "HOME": str(self.folder)}

    def prepare(self) -> None:
        policy = self.folder / "gambeson.toml"
        policy.write_text(RULES)
        policy.chmod(0o600)
        for words in (["init", "--key-file"], ["create", "suite"]):
            environment = {**clean_environment(), **self.keys}
            subprocess.run([str(self.gambeson), "key", *words], env=environment, check=True, capture_output=True)

    def sealed_files(self) -> int:
        """How many sealed files have been closed."""
        anchors = self.folder / "keys" / "anchors"
        return len(list(anchors.iterdir())) if anchors.is_dir() else 0

    def contents(self, path: Path) -> bytes:
        """What programs see of a file, sealed or in clear; nothing if it can't be had."""
        environment = {**clean_environment(), **self.keys}
        cat = [str(self.gambeson), "file", "cat", str(path)]
        done = subprocess.run(cat, env=environment, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else path.read_bytes()


@contextmanager
def vault(runner: Runner) -> Iterator[Runner]:
    """The runner of a suite about files: a plain one as it is, else one with keys and a rule for files."""
    if runner.plain:
        yield runner
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        sealing = Sealing(runner.gambeson, folder=Path(folder))
        sealing.prepare()
        yield sealing


def unsealed(runner: Runner, before: int = 0) -> bool:
    """Whether a job that was to seal its files has sealed none."""
    return isinstance(runner, Sealing) and runner.sealed_files() <= before
