"""The foreign suites about files: HDF5's parallel tests and mpi4py's tests of MPI-IO, in clear and sealed.

Sealed, a rule has every file sealed that is opened with MPI, in small blocks so that ranks share many of them. The key
store writes down each sealed file that is closed: a job after which nothing stands there has proved nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.suites import Outcomes, Result, run_mpi4py
from harness import hdf5
from harness.jobs import Job, Runner
from harness.mpis import ROOT, Mpi, Unavailable, clean_environment

BUILD = ROOT / "build" / "conformance"
FILE_SUITES = {"mpi4py-files": 2, "hdf5": 4}
"""With how many ranks each runs. Some of HDF5's tests want four."""
MPI4PY_MODULES = ["test_file", "test_io"]
RULES = '[[file]]\npattern = "*"\nlabel = "suite"\nblock = "4 KiB"\n'
TIME_LIMIT_S = 900.0
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


def parts_of(suite: str) -> list[str]:
    return MPI4PY_MODULES if suite == "mpi4py-files" else list(HDF5_PROGRAMS)


def run_files(
    runner: Runner, mpi: Mpi, ranks: int, suite: str, part: str, known: Outcomes | None = None, only: str = ""
) -> Result:
    """One part of a suite; of testphdf5, `only` names one test."""
    with vault(runner) as runner:
        if suite == "hdf5":
            result = run_hdf5(runner, mpi, ranks, part, only)
        else:
            result = replace(run_mpi4py(runner, mpi, ranks, [part], known), suite=suite)
            if unsealed(runner):
                result.outcomes[f"{part} (no file was sealed)"] = "failed"
    return result


# --- HDF5's parallel tests, compiled against the distribution's libraries


HDF5_PROGRAMS = {
    "t_mpi": (),
    "testphdf5": (
        *("t_dset", "t_file", "t_file_image", "t_mdset", "t_ph5basic", "t_coll_chunk", "t_span_tree", "t_chunk_alloc"),
        *("t_filter_read", "t_prop", "t_coll_md_read"),
    ),
    "t_pread": (),
    "t_pshutdown": (),
    "t_prestart": (),
    "t_shapesame": (),
    "t_filters_parallel": (),
}
"""Programs and their further sources. Of the others t_cache and t_cache_image are about the cache of metadata, and a
process of their own makes files by the serial driver; t_bigio is about gigabytes; t_pflush1 aborts on purpose and
leaves its file to the serial driver; t_init_term makes no file under MPI."""
FIRST = {"t_prestart": "t_pshutdown"}
WRITTEN_BY = {
    **{f"{kind}r": f"{kind}w" for kind in ("idset", "cdset", "eidset", "ecdset", "ngrp", "ccont", "cschunk", "ccchunk")}
}
"""Tests that read what another one has written."""


def sources(package: str) -> Path:
    """The distribution's source of a package, which is fetched once."""
    found = sorted(BUILD.glob(f"{package}-*/"))
    if found:
        return found[0]
    if not shutil.which("apt-get"):
        raise Unavailable(f"the sources of {package} come from Debian's archive, and this host has no apt-get")
    apt = BUILD / "apt"
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    # The lists of binary packages say where the sources are; the host's own lists stay as they are.
    line = ["--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages", "Label: Debian"]
    listed = subprocess.run(["apt-get", "indextargets", *line], check=True, capture_output=True, text=True).stdout
    (apt / "sources.list").write_text("".join(sorted(set(listed.splitlines(keepends=True)))))
    places = {"Dir::Etc::SourceList": apt / "sources.list", "Dir::State::Lists": apt / "lists"}
    settings = {**places, "Dir::Etc::SourceParts": "/dev/null", "APT::Sandbox::User": "root"}
    options = ["-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    for words in (["update"], ["source", "--download-only", package]):
        subprocess.run(["apt-get", *options, *words], check=True, capture_output=True, cwd=apt)
    archive = next(apt.glob(f"{package}_*.orig.tar.*"))
    subprocess.run(["tar", "-xf", str(archive), "-C", str(BUILD)], check=True)
    return sorted(BUILD.glob(f"{package}-*/"))[0]


def hdf5_programs(mpi: Mpi) -> Path:
    """The folder with the test programs for this MPI; they are compiled once."""
    headers, library = hdf5.library(mpi)
    folder = BUILD / f"hdf5-for-{mpi.name}"
    if all((folder / name).is_file() for name in HDF5_PROGRAMS):
        return folder
    source = sources("hdf5")
    folder.mkdir(parents=True, exist_ok=True)
    # The one header that HDF5's own build makes.
    (folder / "H5srcdir_str.h").write_text('static const char *config_srcdir = ".";\n')
    places = [folder, source / "src", source / "test", source / "testpar", headers]
    compiler = [str(mpi.mpicc), "-O1", "-w", *(f"-I{place}" for place in places)]
    common = ["h5test", "testframe"]
    for name in common:
        output = str(folder / f"{name}.o")
        subprocess.run([*compiler, "-c", str(source / "test" / f"{name}.c"), "-o", output], check=True)
    objects = [str(folder / f"{name}.o") for name in common]
    for name, more in HDF5_PROGRAMS.items():
        own = [str(source / "testpar" / f"{part}.c") for part in (name, *more)]
        words = [*own, *objects, str(library), "-lm", "-o", str(folder / name)]
        subprocess.run([*compiler, *words], check=True)
    return folder


def testphdf5_tests() -> list[str]:
    """The names of testphdf5's tests, those included that need more ranks."""
    text = (sources("hdf5") / "testpar" / "testphdf5.c").read_text()
    text = re.sub(r"#ifdef PB_OUT.*?#endif", "", text, flags=re.S)
    return re.findall(r'AddTest\((?:\([^)]*\) \? "[^"]*" : )?"([^"]+)"', text)


def run_hdf5(runner: Runner, mpi: Mpi, ranks: int, program: str, only: str = "") -> Result:
    result = Result("hdf5", mpi.name, ranks, not runner.plain)
    folder = hdf5_programs(mpi)
    started = time.monotonic()
    tests = ([only] if only else testphdf5_tests()) if program == "testphdf5" else [""]
    for test in tests:
        with tempfile.TemporaryDirectory(dir=MEMORY) as place:
            env = {"HDF5_PARAPREFIX": place, **hdf5.environment(mpi)}
            before = runner.sealed_files() if isinstance(runner, Sealing) else 0
            if program in FIRST:
                runner.run(mpi, [folder / FIRST[program]], n=ranks, env=env, cwd=Path(place), timeout=TIME_LIMIT_S)
            words: list[str | Path] = [folder / program]
            for name in (WRITTEN_BY.get(test, ""), test):
                words += ["-o", name] if name else []
            job = runner.run(mpi, words, n=ranks, env=env, cwd=Path(place), timeout=TIME_LIMIT_S)
        name = f"{program} {test}".strip()
        outcome = "hang" if job.timed_out else "ok" if job.status == 0 else "failed"
        if outcome == "ok" and test and f"({test})" not in "".join(re.findall(r"^Testing.*$", job.stdout, re.M)):
            outcome = "skipped"
        if outcome == "ok" and test not in WITHOUT_FILES and unsealed(runner, before):
            outcome = "failed"
            result.notes.append(f"{result.key}: {name}: no file was sealed")
        if outcome == "failed" and name in SERIAL and not runner.plain:
            outcome = "refused"
        result.outcomes[name] = outcome
        if outcome in ("failed", "hang"):
            result.note(name, outcome, job)
    result.seconds = time.monotonic() - started
    return result


SERIAL = {
    *("testphdf5 calloc", "testphdf5 fltread", "testphdf5 cmpdsetr", "testphdf5 atomicity"),
    *("t_pread", "t_filters_parallel"),
}
"""Tests that make or open the same file past MPI, too: by HDF5's serial driver, or to put a block before it."""
WITHOUT_FILES = {"mpiodup", "edpl", "fiodc"}
"""Tests that open nothing with MPI."""
