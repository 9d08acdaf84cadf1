"""make install leaves a tree that works wherever it is put, without the source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.jobs import Runner
from harness.mpis import ROOT, Mpi
from harness.programs import Programs
from harness.python import Package


@pytest.mark.mpis("mpich")
def test_an_installed_gambeson_runs_jobs(gambeson: Path, mpi: Mpi, programs: Programs, tmp_path: Path) -> None:
    prefix = tmp_path / "a prefix"
    subprocess.run([ROOT / "tools" / "install.sh", gambeson.parent, prefix], check=True, capture_output=True)
    job = Runner(prefix / "bin" / "gambeson").run(mpi, [programs.path("partitioned.py")], n=2, cwd=tmp_path)
    assert "all ok" in job.check().stdout
    headers = {path.name for path in (prefix / "include" / "gambeson").iterdir()}
    assert headers == {"link.h", "gambeson_mpi.h", "gambeson_mpi.f90", "gambeson_mpi_f08.f90"}
    manual = (prefix / "share" / "man" / "man1" / "gambeson-run.1").read_text()
    assert "intra" in manual
    assert (prefix / "share" / "man" / "man1" / "gambeson-keyd.1").exists()
    units = [
        ("system", "gambesond", "daemon"),
        ("user", "gambesond", "daemon"),
        ("system", "gambeson-keyd", "keyd serve"),
    ]
    for folder, name, command in units:
        unit = prefix / "lib" / "systemd" / folder / f"{name}.service"
        assert f'ExecStart="{prefix}/bin/gambeson" {command}' in unit.read_text()
        if shutil.which("systemd-analyze"):
            verified = ["systemd-analyze", "verify", "--man=no", f"--{folder}", str(unit)]
            env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
            said = subprocess.run(verified, env=env, capture_output=True, text=True, timeout=60, check=False)
            assert said.returncode == 0 and name not in said.stderr, said
    assert "gambeson" in (prefix / "share" / "bash-completion" / "completions" / "gambeson").read_text()


@pytest.mark.mpis("mpich")
def test_a_virtual_environment_with_the_wheel_has_the_command(
    package: Package, mpi: Mpi, programs: Programs, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    pip: list[str | Path] = [
        tmp_path / "venv" / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--no-deps", "--no-index", package.wheel], check=True, timeout=120)
    job = Runner(tmp_path / "venv" / "bin" / "gambeson").run(mpi, [programs.path("partitioned.py")], n=2, cwd=tmp_path)
    assert "all ok" in job.check().stdout
