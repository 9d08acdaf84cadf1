"""Fixtures of the tests that need a provider built with the feature `nonce-oracle`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.mpis import ROOT


@pytest.fixture(scope="session")
def oracle(gambeson: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `gambeson` with such a provider beside it."""
    stage = tmp_path_factory.mktemp("oracle")
    command = [*os.environ.get("CARGO", "cargo").split(), "build", "--quiet", "--locked", "-p", "gambeson-fabric"]
    subprocess.run([*command, "--features", "nonce-oracle"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    shutil.copy2(target / "debug" / "libgambeson_fi.so", stage / "libgambeson-fi.so")
    for beside in ("libgambeson-guard.so", "libgambeson-mpi.so", "gambeson-fabric-info"):
        shutil.copy2(gambeson.parent / beside, stage)
    return Path(shutil.copy2(gambeson, stage))
