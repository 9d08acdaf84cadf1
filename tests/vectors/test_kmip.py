"""The messages of KMIP that the Rust code is tested with are what PyKMIP writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness.kmip import PYTHON

from vectors.cases import DIRECTORY


def test_the_files_hold_what_pykmip_writes() -> None:
    if not PYTHON.is_file():
        pytest.fail(f"no {PYTHON}: run tools/bootstrap.sh test")
    program = Path(__file__).with_name("kmip_messages.py")
    written = subprocess.run([PYTHON, str(program)], capture_output=True, check=True, timeout=60).stdout
    files = {path.stem: json.loads(path.read_text()) for path in (DIRECTORY / "kmip").iterdir()}
    assert files == json.loads(written)
