"""`gambeson sim` as tests call it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness.mpis import ROOT

SMALL = """\
topology = { kind = "mesh", dims = [2, 2] }
measure = { warmup_us = 5, for_us = 50 }
[[traffic]]
load = 0.2
"""


class Sim:
    """`gambeson sim` in a folder."""

    def __init__(self, gambeson: Path, folder: Path) -> None:
        self.gambeson = gambeson
        self.folder = folder

    def furnish(self) -> None:
        """Puts the experiments of examples/simulator into the folder, and a small one."""
        shutil.copytree(ROOT / "examples" / "simulator", self.folder, dirs_exist_ok=True)
        (self.folder / "small.toml").write_text(SMALL)

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.gambeson), "sim", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)

    def run(self, *arguments: str | Path) -> str:
        """What a call prints that ends well."""
        done = self.call(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
