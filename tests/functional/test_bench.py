"""`gambeson bench`: that it measures all sides and reports what it measured. No assertion on times."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from harness.jobs import Job, run_marked
from harness.mpis import ALL, Mpi, clean_environment

SIZES = [0, 8, 65536]
CARRIERS = ["shared memory", "TCP"]


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


def bench_here(gambeson: Path, *arguments: str) -> Job:
    return run_marked([str(gambeson), "bench", *arguments], env=clean_environment(), timeout=100)


def test_links_are_measured_over_both_carriers(gambeson: Path, tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    quick = ["--runs", "2", "--lengths", "8,4K"]
    job = bench_here(gambeson, "link", *quick, "--json", str(file), "--pictures", str(tmp_path)).check()
    report = json.loads(file.read_text())
    measured = {(series["carrier"], series["side"], series["kind"], series["length"]) for series in report["series"]}
    works = [("trips", 8), ("trips", 4096), ("outstanding", 8), ("stream", 1 << 20)]
    sides = ["bare", "in clear", "integrity", "sealed"]
    assert measured == {(carrier, side, *work) for carrier in CARRIERS for side in sides for work in works}
    for series in report["series"]:
        assert len(series["seconds"]) == len(series["cpu"]) == 2
        assert all(value > 0 for value in series["seconds"] + series["cpu"])
    assert {type(aim["met"]) for aim in report["aims"]} == {bool}
    assert "Request and answer over TCP" in job.stdout
    for name in ("links-shm", "links-tcp"):
        assert "sealed" in "".join(ElementTree.parse(tmp_path / f"{name}.svg").getroot().itertext())
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_papers_figures_are_drawn_again(gambeson: Path, tmp_path: Path) -> None:
    file = tmp_path / "paper.json"
    options = ["--paper", "--runs", "1", "--json", str(file), "--pictures", str(tmp_path)]
    job = bench_here(gambeson, "link", *options).check()
    curves = {curve["name"]: curve for curve in json.loads(file.read_text())["curves"]}
    assert {name: round(curve["paper"] * 1e6) for name, curve in curves.items()} == {
        "TCP secure": 472,
        "shared memory secure": 128,
        "TCP unsecure": 394,
        "shared memory unsecure": 78,
    }
    for curve in curves.values():
        lengths = [length for length, _ in curve["points"]]
        assert (lengths[0], lengths[-1]) == (0, 10_000)
        assert all(seconds > 0 for _, seconds in curve["points"])
    assert job.stdout.count("here: ") == 5
    ways = {"copied together", "gathered", "sealed inside put"}
    sizes = {4 << 10, 64 << 10, 1 << 20}
    put = {(series["side"], series["length"]) for series in json.loads(file.read_text())["put"]}
    assert put == {(way, length) for way in ways for length in sizes}
    for figure in ("links-figure-6", "links-figure-7"):
        text = "".join(ElementTree.parse(tmp_path / f"{figure}.svg").getroot().itertext())
        assert "shared memory unsecure" in text


def test_the_coupled_model_ends_in_one_state_however_its_links_are_protected(gambeson: Path, tmp_path: Path) -> None:
    def run(processes: int) -> dict[str, Any]:
        file = tmp_path / f"{processes}.json"
        options = ["--days", "1", "--cells", "16", "--rounds", "1", "--processes", str(processes), "--json", str(file)]
        bench_here(gambeson, "coupled", *options).check()
        report: dict[str, Any] = json.loads(file.read_text())
        return report

    # That all settings of one call end alike the command itself sees to: it fails otherwise.
    alone, divided = run(1), run(2)
    assert alone["state"] == divided["state"]
    modes = ["none", "coupler", "all"]
    settings = {(run["mode"], run["within"]) for run in divided["runs"]}
    assert settings == {(mode, within) for mode in modes for within in CARRIERS}
    heat = divided["heat"]
    assert heat["given"] == pytest.approx(heat["ocean_gained"], abs=1e-6)
    assert heat["radiated"] == pytest.approx(heat["ocean_gained"] + heat["atmosphere_gained"], abs=1e-6)
    assert abs(heat["given"]) > 1


def test_a_plane_that_cannot_be_divided_is_refused(gambeson: Path) -> None:
    job = bench_here(gambeson, "coupled", "--cells", "16", "--processes", "3")
    assert job.status == 64
    assert "give a multiple of 6" in job.stderr


QUICK = ["-b", "128K", "-t", "64K", "--size", "512K", "--rounds", "2"]


def bench_files(gambeson: Path, mpi: Mpi, *options: str, ranks: str = "2", behind: tuple[str, ...] = ()) -> Job:
    command = [str(gambeson), "bench", "files", *options, "--", *mpi.mpiexec, "-n", ranks, *behind]
    return run_marked(command, env={**clean_environment(), **mpi.common}, timeout=200)


@pytest.mark.mpis("mpich", "openmpi")
def test_files_are_measured_plain_and_sealed(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    file, pictures = tmp_path / "files.json", tmp_path / "pictures"
    folder = tmp_path / "files"
    folder.mkdir()
    options = ["--dir", str(folder), "--json", str(file), "--pictures", str(pictures)]
    job = bench_files(gambeson, mpi, *QUICK, *options).check()
    report = json.loads(file.read_text())
    assert (report["rounds"], len(report["load"])) == (2, 3)
    measured = {(series["pattern"], series["map"], series["quantity"]) for series in report["series"]}
    on_disk = any(quantity == "read_disk" for _, _, quantity in measured)
    quantities = ["write", "read"] + ["read_disk"] * on_disk
    contiguous = {("independent", "rule"), ("collective", "rule"), ("16 KiB pieces", "rule")}
    maps = [("by rows", "rule"), ("by rows", "view")]
    maps += [(f"by {split}", map_) for split in ("columns", "blocks") for map_ in ("rule", "view", "other")]
    expected = {(*pattern, quantity) for pattern in [*contiguous, *maps] for quantity in quantities}
    expected |= {(pattern, "rule", "write_synced") for pattern in ("independent", "collective")}
    kernels = ("coll_perf", "matmul", "synthetic", "rows")
    expected |= {(kernel, map_, "run") for kernel in kernels for map_ in ("view", "other")}
    assert measured == expected | {("MPI_File_set_view", "rule", "set_view")}
    for series in report["series"]:
        plain, sealed = series["sides"]
        assert (plain["side"], sealed["side"], series["ranks"]) == ("plain", "sealed", 2)
        assert len(plain["seconds"]) == len(sealed["seconds"]) == 2
        assert all(value > 0 for value in plain["seconds"] + sealed["seconds"])
        assert set(sealed["ratio"]) == {"of_best", "median", "best"}
    assert {type(aim["met"]) for aim in report["aims"]} == {bool}
    for text in ("map != view, write, MiB/s", "MPI_File_set_view, ns", "Aims"):
        assert text in job.stdout
    figure_10 = "files-figure-10" if on_disk else "files-figure-10-memory"
    for name, text in (("files", "16 KiB pieces"), (figure_10, "coll_perf")):
        assert text in "".join(ElementTree.parse(pictures / f"{name}.svg").getroot().itertext())
        assert (pictures / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.iterdir())


@pytest.mark.mpis("mpich")
def test_ranks_suites_blocks_and_detached_files_are_swept(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    file = tmp_path / "files.json"
    sweep = ["--ranks", "1,3", "--suites", "xaes-256-gcm,aes-256-gcm-siv", "--blocks", "64K,4K", "--beside", "detached"]
    options = ["--dir", str(tmp_path), "--patterns", "kernels", "--json", str(file), "--pictures", str(tmp_path)]
    bench_files(gambeson, mpi, *QUICK, *sweep, *options, ranks="{ranks}").check()
    series = json.loads(file.read_text())["series"]
    assert {one["ranks"] for one in series} == {1, 3}
    variants = [("xaes-256-gcm", 65536, False), ("aes-256-gcm-siv", 65536, False), ("xaes-256-gcm", 4096, False)]
    variants.append(("xaes-256-gcm", 65536, True))
    for one in series:
        assert [(side["suite"], side["block"], side["detached"]) for side in one["sides"][1:]] == variants
    assert not list(tmp_path.glob("gambeson-bench-*"))
    drawn = {path.stem for path in tmp_path.glob("*.svg")}
    assert drawn >= {"files-figure-11a", "files-figure-11b"}
    assert any(name.startswith("files-figure-10") for name in drawn)


@pytest.mark.mpis("mpich")
def test_a_sealed_side_that_is_in_clear_is_noticed(gambeson: Path, mpi: Mpi, tmp_path: Path) -> None:
    # The guard alone: messages are as they should be, and nothing stands before the routines of files.
    guard = next(gambeson.parent.glob("libgambeson[-_]guard.so"))
    job = bench_files(gambeson, mpi, *QUICK, "--dir", str(tmp_path), behind=("env", f"LD_PRELOAD={guard}"))
    assert job.status == 70
    assert "which the sealed side wrote, is in clear" in job.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.mpis("mpich")
@pytest.mark.parametrize(
    ("options", "ranks", "sentence"),
    [
        (["-t", "5000"], "2", "-t has to be a multiple of 4K"),
        (["--ranks", "1,2"], "2", "no place for"),
        ([], "{ranks}", "give the numbers of processes with --ranks"),
        (["--blocks", "5000"], "2", "no power of two from 4K to 1M"),
        (["--suites", "aes-256-xts"], "2", "aes-256-xts is no suite of a policy"),
        (["--dir", "/nowhere"], "2", "/nowhere is no folder to measure in"),
        (["--dir", "/dev/shm", "-b", "1G", "-s", "65536"], "2", "the measurement needs"),
        (["--dir", "/dev/shm", "--size", "100"], "2", "need a --size of"),
    ],
)
def test_what_files_cannot_be_measured_with_is_explained(
    gambeson: Path, mpi: Mpi, options: list[str], ranks: str, sentence: str
) -> None:
    job = bench_files(gambeson, mpi, *options, ranks=ranks)
    assert job.status == 64
    assert sentence in job.stderr


def test_starts_by_daemons_are_measured_beside_ones_own(gambeson: Path, tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    command = [str(gambeson), "bench", "launch", "--no-ssh", "--rounds", "1", "--json", str(file)]
    job = run_marked(command, env=clean_environment(), timeout=200).check()
    report = json.loads(file.read_text())
    values = [report[name] for name in ("open", "own", "tree")]
    values += [report["gambeson"][name] for name in ("command", "processor", "at_once")]
    assert all(len(value) == 1 and value[0] > 0 for value in values), report
    assert report["gambeson"]["failed"] == [0]
    assert "1000 processes at 4 daemons" in job.stdout
