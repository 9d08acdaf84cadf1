"""The Python package as users have it: a wheel, installed into a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Package:
    """`gambeson` for any Python of the machine."""

    def __init__(self, wheel: Path, python: Path, folder: Path) -> None:
        self.wheel = wheel
        self.folder = folder
        self.python = python
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True, timeout=120)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder)}

    def start(self, *arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
        """Python with these arguments."""
        command = [str(self.python), *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=cwd, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def call(self, program: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a program."""
        # A file, and not -c: workers of executors import it again.
        path = cwd / "program.py"
        path.write_text(program)
        process = self.start(path, cwd=cwd)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            # One that hangs is not left behind; it has ended otherwise.
            process.kill()
        return subprocess.CompletedProcess(path, process.returncode, out, err)

    def run(self, program: str, cwd: Path) -> Any:
        """Runs a program that ends well, and reads the JSON that it prints."""
        done = self.call(program, cwd)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None
