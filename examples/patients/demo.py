"""Patients' records under two labels, from the job that writes them to the collaborator who may read a part.

    python examples/patients/demo.py [mpich|openmpi ...]        (make example-patients)

Shows each command and what it says. The status is 0 if all was as it should be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from harness import hdf5, mpis  # noqa: E402
from harness.mpis import Mpi, Unavailable, clean_environment  # noqa: E402

POLICY = '[[file]]\npattern = "*.h5"\nlabel = "clinical"\n'
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
GAMBESON = os.environ.get("GAMBESON", str(TARGET / "release" / "gambeson"))
READ = """
import sys, gambeson, h5py
with h5py.File(gambeson.open("patients.h5")) as file:
    print("diagnoses:", file["diagnoses"][:5])
    try:
        print("identities:", file["identities"][:2])
    except OSError as error:
        print("identities:", error)
"""


class Demo:
    """One folder with keys of two people, in which everything happens."""

    def __init__(self, mpi: Mpi, folder: Path) -> None:
        self.mpi, self.folder = mpi, folder
        self.file = folder / "patients.h5"

    def show(self, title: str, words: list[str], person: str, status: int | None = 0) -> str:
        """Runs a command under somebody's identity; None stands for any status but 0."""
        environment = {**clean_environment(), **self.mpi.common, **hdf5.environment(self.mpi)}
        environment |= {"HOME": str(self.folder), "GAMBESON_KEYS": str(self.folder / f"keys-of-the-{person}")}
        done = subprocess.run(
            words, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )
        said = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if line.strip())
        shown = " ".join(Path(word).name if "/" in word else word for word in words)
        print(f"\n# {title} ({person})\n$ {shown}\n{said}", flush=True)
        if (done.returncode != status) if status is not None else not done.returncode:
            raise SystemExit(f"demo: this ended with {done.returncode}, which it should not")
        return said

    def gambeson(self, title: str, words: str, person: str, status: int | None = 0) -> str:
        return self.show(title, [GAMBESON, *words.split()], person, status)

    def job(self, title: str, ranks: int, words: str, person: str, status: int | None = 0) -> str:
        run = [GAMBESON, "run", "--quiet", "--policy", "gambeson.toml", "--", *self.mpi.mpiexec, "-n", str(ranks)]
        return self.show(title, [*run, str(self.folder / "patients"), *words.split()], person, status)

    def compile(self) -> None:
        headers, library = hdf5.library(self.mpi)
        places = [f"-I{headers}", f"-I{ROOT / 'crates' / 'gambeson-mpi' / 'include'}"]
        program = [str(HERE / "patients.c"), "-o", str(self.folder / "patients"), str(library)]
        subprocess.run([str(self.mpi.mpicc), "-O1", "-Wall", *places, *program], check=True)

    def keys(self) -> None:
        """The clinic has both labels, the researcher the one for diagnoses, to read."""
        word = self.folder / "passphrase"
        word.touch(0o600)
        word.write_text("said on the telephone\n")
        self.gambeson("keys", "key init --key-file", "clinic")
        for label in ("clinical", "identity"):
            self.gambeson("a label", f"key create {label}", "clinic")
        export = f"--export-passphrase-file {word} {self.folder / 'for-the-researcher'}"
        self.gambeson("one label for a researcher, to read", f"key export --read-only {export} clinical", "clinic")
        self.gambeson("keys", "key init --key-file", "researcher")
        self.gambeson("takes it in", f"key import {export}", "researcher")

    def run(self) -> None:
        self.compile()
        policy = self.folder / "gambeson.toml"
        policy.write_text(POLICY)
        policy.chmod(0o600)
        self.keys()
        self.job("a job writes", 3, "write patients.h5", "clinic")
        self.gambeson("what stands in the file", "file info patients.h5", "clinic")
        if dump := shutil.which("h5dump"):
            self.show("has the disk", [dump, "patients.h5"], "thief", None)
        else:
            print("\n(h5dump is not here: Debian's hdf5-tools)")
        if any(part in self.file.read_bytes() for part in (b"Noether", b"\x89HDF")):
            raise SystemExit("demo: a name stands in the file in clear")
        self.job("another number of ranks reads", 4, "read patients.h5", "clinic")
        self.job("reads what is the researcher's to read", 2, "read patients.h5", "researcher")
        self.laptop()
        self.alter()

    def laptop(self) -> None:
        python = str(Path(shutil.which(os.environ.get("PYTHON", sys.executable)) or sys.executable).absolute())
        probe = [python, "-c", "import gambeson, h5py"]
        if subprocess.run(probe, capture_output=True, check=False).returncode:
            print(f"\n(without MPI: left out, {python} has no gambeson and h5py; make install-python, or PYTHON=...)")
            return
        self.show("reads without MPI", [python, "-c", READ], "researcher")

    def alter(self) -> None:
        """One bit in the midst of the names."""
        content = bytearray(self.file.read_bytes())
        content[len(content) // 2] ^= 1
        self.file.write_bytes(content)
        self.gambeson("somebody has changed one bit", "file verify patients.h5", "clinic", 1)


def main() -> None:
    names = sys.argv[1:] or ["mpich", "openmpi"]
    for name in names:
        try:
            mpi = mpis.find(name)
            hdf5.library(mpi)
        except Unavailable as reason:
            raise SystemExit(f"demo: {reason}") from None
        print(f"===== {name}")
        with tempfile.TemporaryDirectory() as folder:
            Demo(mpi, Path(folder)).run()


if __name__ == "__main__":
    main()
