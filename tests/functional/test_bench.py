"""`gambeson bench messages`: that it measures both sides and reports what it measured. No assertion on times."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import ALL, Mpi, clean_environment

SIZES = [0, 8, 65536]


def bench(gambeson: Path, mpi: Mpi, *options: str) -> Job:
    quick = ["--sizes", "0,8,64K", "--time", "5"]
    command = [str(gambeson), "bench", "messages", *quick, *options, "--", *mpi.mpiexec, "-n", "2"]
    return run_marked(command, env={**clean_environment(), **mpi.common}, timeout=200)


@pytest.mark.mpis(*ALL)
def test_both_sides_are_measured_every_round(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    job = bench(gambeson, mpi, "--rounds", "2", "--json", str(file)).check()
    report = json.loads(file.read_text())
    assert (report["rounds"], report["core"]) == (2, "tcp")
    assert len(report["load"]) == 3
    measured = [(series["quantity"], series["size"]) for series in report["series"]]
    assert measured == [*(("latency", size) for size in SIZES), ("bandwidth", 8), ("bandwidth", 65536), ("rate", 8)]
    for series in report["series"]:
        values = series["plain"] + series["sealed"]
        assert len(values) == 4
        assert all(value > 0 for value in values)
        assert set(series["ratio"]) == {"of_best", "median", "best"}
    for title in ("Latency", "Bandwidth", "Message rate", "64 KiB"):
        assert title in job.stdout


@pytest.mark.mpis("mpich")
def test_the_picture_is_drawn_as_its_name_says(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    svg, png = tmp_path / "bench.svg", tmp_path / "bench.png"
    bench(gambeson, mpi, "--rounds", "1", "--plot", str(svg)).check()
    bench(gambeson, mpi, "--rounds", "1", "--plot", str(png)).check()
    assert "Latency" in "".join(ElementTree.parse(svg).getroot().itertext())
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.mpis("mpich")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--plot", "picture.pdf"], "ends neither in .svg nor in .png"),
        (["--sizes", "1X"], "1X is no size"),
        (["--rounds", "0"], "0 is not in"),
    ],
)
def test_a_wrong_option_is_explained(gambeson: Path, mpi: Mpi, options: list[str], sentence: str) -> None:
    command = [str(gambeson), "bench", "messages", *options, "--", *mpi.mpiexec, "-n", "2"]
    job = run_marked(command, env=clean_environment(), timeout=30)
    assert job.status == 64
    assert sentence in job.stderr
