"""HDF5's parallel tests, compiled from the distribution's source against its libraries."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

from conformance.sealing import MEMORY, Sealing, unsealed
from conformance.sources import BUILD, sources
from conformance.suites import Result
from harness import hdf5
from harness.jobs import Job, Runner
from harness.mpis import Mpi

TIME_LIMIT_S = 900.0
ATTEMPTS = 4
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
        name = f"{program} {test}".strip()
        before = runner.sealed_files() if isinstance(runner, Sealing) else 0
        for _ in range(ATTEMPTS):
            job, outcome = run_test(runner, mpi, ranks, folder / program, test)
            # Launchers may drop what a rank says before it ends the job.
            if outcome != "failed" or name not in SERIAL or "VRFY (" in job.output:
                break
        if outcome == "ok" and test and f"({test})" not in "".join(re.findall(r"^Testing.*$", job.stdout, re.M)):
            outcome = "skipped"
        if outcome == "ok" and test not in WITHOUT_FILES and unsealed(runner, before):
            outcome = "failed"
            result.notes.append(f"{result.key}: {name}: no file was sealed")
        result.outcomes[name] = outcome
        if outcome in ("failed", "hang"):
            result.note(name, outcome, job)
    result.seconds = time.monotonic() - started
    return result


def run_test(runner: Runner, mpi: Mpi, ranks: int, program: Path, test: str) -> tuple[Job, str]:
    """One program, or one of its tests, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        env = {"HDF5_PARAPREFIX": place, **hdf5.environment(mpi)}

        def start(*words: str | Path) -> Job:
            return runner.run(mpi, words, n=ranks, env=env, cwd=Path(place), timeout=TIME_LIMIT_S)

        if program.name in FIRST:
            start(program.with_name(FIRST[program.name]))
        job = start(program, *(word for name in (WRITTEN_BY.get(test), test) if name for word in ("-o", name)))
        if job.timed_out or job.status == 0:
            return job, "hang" if job.timed_out else "ok"
        name = f"{program.name} {test}".strip()
        refused = isinstance(runner, Sealing) and is_refusal(runner, name, job, Path(place))
        return job, "refused" if refused else "failed"


def is_refusal(runner: Sealing, name: str, job: Job, place: Path) -> bool:
    """Whether a test has failed because it goes on past MPI with a file of MPI's, or the reverse."""
    if IN_CLEAR in job.output:
        return True
    # Ranks print as they like, so that the first to be seen may be another that follows from it.
    failed = re.findall(r"VRFY \((.*)\) failed at line +\d+ in \S*/(\S+)", job.output)
    if SERIAL.get(name) not in [(source, check) for check, source in failed]:
        return False
    # What was made is there all the same.
    return all(runner.contents(path).startswith(b"\x89HDF") for path in place.iterdir())


IN_CLEAR = "it is in clear; seal it with `gambeson file seal`"
"""What Gambeson says of a file that was made past MPI."""
SERIAL = {
    "testphdf5 calloc": ("t_chunk_alloc.c", ""),
    "testphdf5 fltread": ("t_filter_read.c", "H5Fopen"),
    "testphdf5 cmpdsetr": ("t_dset.c", "H5Fopen succeeded"),
    "testphdf5 atomicity": ("t_dset.c", "H5Fopen succeeed"),
    "t_filters_parallel": ("t_filters_parallel.c", "Test file open succeeded"),
}
"""Tests that keep to themselves why a file was not opened, and the check at which each stops: there it opens with MPI
what HDF5's serial driver has made, or with the serial driver what was made with MPI."""
WITHOUT_FILES = {"mpiodup", "edpl", "fiodc"}
"""Tests that open nothing with MPI."""
