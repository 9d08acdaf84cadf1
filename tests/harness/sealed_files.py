"""A folder in which jobs write sealed files: a policy that seals `*.sealed` under "clinical", and key stores."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.jobs import Job, run_marked
from harness.mpis import ROOT, Mpi, clean_environment

PROGRAMS = ROOT / "tests" / "programs"
RULES = '[[file]]\npattern = "*.sealed"\nlabel = "clinical"\n'


@dataclass
class Lab:
    """A folder with a policy and somebody's keys, in which jobs run."""

    gambeson: Path
    mpi: Mpi
    folder: Path

    def keys(self, name: str, *labels: str) -> Path:
        """A key store that opens by itself, with labels of its own."""
        store = self.folder / name
        self.tool({"GAMBESON_KEYS": str(store)}, "key", "init", "--key-file")
        for label in labels:
            self.tool({"GAMBESON_KEYS": str(store)}, "key", "create", label)
        return store

    def tool(self, more: dict[str, str], *words: str, status: int = 0) -> str:
        command = [str(self.gambeson), *words]
        environment = {**clean_environment(), "HOME": str(self.folder), **more}
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done
        return done.stdout + done.stderr

    def run(
        self,
        *words: str,
        n: int = 3,
        keys: Path | None = None,
        roles: list[Path] | None = None,
        program: str | Path = "files.py",
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """A job of a program, one in Python by its name; with `roles`, one rank for each of these key stores."""
        options = ["run", "--quiet", "--policy", str(self.folder / "gambeson.toml"), "--", *self.mpi.mpiexec]
        interpreted = [self.mpi.python, str(PROGRAMS / program)]
        command = [*(interpreted if isinstance(program, str) else [str(program)]), *words]
        if roles:
            parts = [["-n", "1", "env", f"GAMBESON_KEYS={store}", *command] for store in roles]
            ranks = [word for part in parts for word in [*part, ":"]][:-1]
        else:
            ranks = ["-n", str(n), *command]
        environment = {**clean_environment(), **self.mpi.common, "HOME": str(self.folder), **(env or {})}
        if keys:
            environment["GAMBESON_KEYS"] = str(keys)
        return run_marked([str(self.gambeson), *options, *ranks], env=environment, timeout=120, cwd=self.folder)
