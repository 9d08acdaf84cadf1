"""The programs under tests/programs: Python as it is, C and Fortran compiled once per compiler and content."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASK = Path(__file__).resolve().parents[1] / "programs" / "ask.py"
"""Asks for a secret of the job that runs it."""


@dataclass(frozen=True)
class Programs:
    source: Path
    build: Path

    def path(self, name: str) -> Path:
        return self.source / name

    def compile(self, compiler: str, name: str, *flags: str, includes: Path | None = None) -> Path:
        """The compiled `name`; compiled again only when the source, the compiler, the flags or what is in the folder
        `includes` changed."""
        source = self.path(name)
        headers = sorted(includes.iterdir()) if includes else []
        flags = (*flags, *([f"-I{includes}"] if includes else []))
        sources = b"".join(path.read_bytes() for path in [source, *headers])
        key = hashlib.sha256(sources + "\0".join([compiler, *flags]).encode()).hexdigest()[:16]
        program = self.build / f"{source.stem}-{key}"
        if not program.exists():
            self.build.mkdir(parents=True, exist_ok=True)
            # Compiled beside and renamed, so that neither an interrupted compiler nor a run beside this one leaves half
            # a program.
            unfinished = program.with_suffix(f".{os.getpid()}.new")
            # The folder of a library is a hint that LD_LIBRARY_PATH overrides, not an order: MPICH's compiler
            # serves Intel MPI too.
            command = [compiler, "-O2", "-g", str(source), "-o", str(unfinished), *flags, "-Wl,--enable-new-dtags"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.build)
            assert done.returncode == 0, f"$ {' '.join(command)}\n{done.stdout}{done.stderr}"
            unfinished.rename(program)
        return program
