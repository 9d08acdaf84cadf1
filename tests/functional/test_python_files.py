"""gambeson.open from an installed wheel: what an MPI job has sealed, as a file object of Python's, and for h5py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness.jobs import run_marked
from harness.mpis import Mpi, clean_environment
from harness.python import Package

PROGRAM = Path(__file__).parent.parent / "programs" / "files.py"


COPY = """
import sys
from mpi4py import MPI

file = MPI.File.Open(MPI.COMM_WORLD, sys.argv[2], MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write_at_all(0, open(sys.argv[1], "rb").read() if MPI.COMM_WORLD.rank == 0 else b"")
file.Close()
"""


@pytest.mark.mpis("mpich")
def test_what_a_job_has_sealed_is_read_without_mpi(gambeson: Path, mpi: Mpi, package: Package, tmp_path: Path) -> None:
    environment = {**clean_environment(), **mpi.common, "HOME": str(tmp_path), "GAMBESON_KEYS": str(tmp_path / "keys")}

    def tool(*words: str) -> None:
        subprocess.run([str(gambeson), *words], env=environment, cwd=tmp_path, check=True, timeout=60)

    tool("key", "init", "--key-file")
    tool("key", "create", "clinical")
    policy = tmp_path / "gambeson.toml"
    rule = '[[file]]\npattern = "*.{}"\nlabel = "clinical"\nblock = "4 KiB"\n'
    policy.write_text(f"{rule.format('sealed')}{rule.format('apart')}detached = true\n")
    policy.chmod(0o600)
    package.run(
        'import h5py, numpy\nwith h5py.File("plain.h5", "w") as file: file["ages"] = numpy.arange(100_000)\n', tmp_path
    )
    (tmp_path / "into_sealed.py").write_text(COPY)
    command = [str(gambeson), "run", "-q", "--policy", "gambeson.toml", "--", *mpi.mpiexec, "-n", "2", mpi.python]
    programs = [[str(PROGRAM), "write", "a.sealed"], ["into_sealed.py", "plain.h5", "h5.sealed"]]
    for program in (*programs, ["into_sealed.py", "plain.h5", "h5.apart"], ["into_sealed.py", "plain.h5", "b.apart"]):
        run_marked([*command, *program], env=environment, timeout=120, cwd=tmp_path).check()

    assert (tmp_path / "h5.apart").stat().st_size == (tmp_path / "plain.h5").stat().st_size
    (tmp_path / "plain").write_bytes(b"in clear")
    (tmp_path / "b.apart").unlink()
    tool("key", "init", "--key-file", "--store", "other")
    found = package.run(
        """
import io, json, gambeson, h5py
with gambeson.open("a.sealed", keys="keys") as file:
    head = file.read(20)
    file.seek(-8, io.SEEK_END)
    tail = len(file.read(100))
    whole = file.seek(0) or file.read()
    raw = file.raw
    facts = [raw.size, raw.block_size, raw.not_anchored, [(r.label, r.refused) for r in raw.regions]]
ages = []
for name in ("h5.sealed", "h5.apart"):
    with h5py.File(gambeson.open(name, keys="keys")) as file:
        ages.append(int(file["ages"][5000:90_000:7].sum()))
refused = {}
for path, keys in [
    ("a.sealed", "other"),
    ("plain", "keys"),
    ("missing", "keys"),
    ("b.apart", "keys"),
    ("h5.apart.gambeson", "keys"),
]:
    try:
        gambeson.open(path, keys=keys)
    except (OSError, ValueError) as error:
        refused[path] = [type(error).__name__, str(error)]
print(json.dumps([head.decode(), tail, len(whole), facts, ages, refused]))
""",
        tmp_path,
    )
    head, tail, length, (size, block_size, not_anchored, regions), ages, refused = found
    assert head == "canary: patient 0815" and tail == 8
    assert length == size == 2 * 4 * (100_003 + 50_000) and block_size == 4096
    assert not_anchored is None and regions == [["clinical", None]]
    assert ages == [sum(range(5000, 90_000, 7))] * 2
    assert refused["a.sealed"][0] == "PermissionError" and "label" in refused["a.sealed"][1]
    assert refused["plain"][0] == "ValueError" and "no sealed file" in refused["plain"][1]
    assert refused["missing"][0] == refused["b.apart"][0] == "FileNotFoundError"
    assert "b.apart: its sidecar b.apart.gambeson is there and its data is gone" in refused["b.apart"][1]
    assert "it is the sidecar of a detached file" in refused["h5.apart.gambeson"][1]
