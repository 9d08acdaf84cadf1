"""`gambeson bench farm`: which Python carries it out, and the figures' values."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from harness.jobs import Job, run_marked
from harness.python import Package


def bench_farm(gambeson: Path, *arguments: str | Path, timeout: float = 100, **environment: str) -> Job:
    command = [str(gambeson), "bench", "farm", *map(str, arguments)]
    return run_marked(command, env={**os.environ, **environment}, timeout=timeout)


def test_without_the_package_it_says_where_it_looked_and_what_to_do(gambeson: Path, tmp_path: Path) -> None:
    # A Python that isolates itself finds no package that a developer has in the way.
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    active = tmp_path / "venv" / "bin" / "python3"
    active.parent.mkdir(parents=True)
    active.symlink_to(python)
    looked = bench_farm(gambeson, PATH=str(python.parent), VIRTUAL_ENV=str(tmp_path / "venv"))
    named = bench_farm(gambeson, "--python", python)
    assert looked.stderr.index(f"{active} (") < looked.stderr.index(f"{python} (")
    for job in (looked, named):
        assert job.status == 69, job.describe()
        assert f"{python} (No module named 'gambeson')" in job.stderr
        assert "`make install-python`" in job.stderr and "--python" in job.stderr
    nowhere = bench_farm(gambeson, "--python", tmp_path / "nothing")
    assert nowhere.status == 69
    assert "No such file or directory" in nowhere.stderr


def test_what_lies_in_the_current_folder_is_not_run(
    gambeson: Path, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "gambeson"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('the trap')")
    monkeypatch.chdir(tmp_path)
    job = bench_farm(gambeson, "--python", package.python)
    assert job.status == 69, job.describe()
    assert "No module named 'gambeson'" in job.stderr


def quick(gambeson: Path, package: Package, folder: Path, *options: str) -> tuple[dict[str, Any], Job]:
    """Every figure once, with three workers."""
    file = folder / "farm.json"
    arguments: list[str | Path] = [
        "--quick",
        "--rounds",
        "1",
        "--workers",
        "3",
        "--json",
        file,
        "--pictures",
        folder,
        *options,
    ]
    job = bench_farm(
        gambeson, "--python", package.python, *arguments, PYTHONPATH=str(package.folder), timeout=150
    ).check()
    return json.loads(file.read_text()), job


def curves(report: dict[str, Any], figure: str, quantity: int = 0) -> dict[tuple[str, str, str], list[float]]:
    """By name, side and manner: where they have points."""
    found = next(one for one in report["figures"] if one["name"] == figure)["quantities"][quantity]["curves"]
    for point in [point for curve in found for point in curve["points"]]:
        assert len(point["values"]) == 1 and point["values"][0] > 0
    return {
        (curve["name"], curve["side"], curve["manner"]): [point["at"] for point in curve["points"]] for curve in found
    }


def test_the_papers_figures_are_measured_and_drawn(gambeson: Path, package: Package, tmp_path: Path) -> None:
    report, job = quick(gambeson, package, tmp_path, "--local")
    assert "processes of this host" in report["site"]
    check_figures(report)
    names = ["speedup", "bandwidth", "iso-grain", "share", "serialisation", "proxy"]
    assert [figure["name"] for figure in report["figures"]] == names
    for name, text in zip(
        names, ("computing", "64 B", "ideal", "sealed from worker 3 on", "sealing", "TLS in Python"), strict=True
    ):
        assert text in "".join(ElementTree.parse(tmp_path / f"farm-{name}.svg").getroot().itertext())
        assert (tmp_path / f"farm-{name}.png").read_bytes().startswith(b"\x89PNG")
    processors = len(os.sched_getaffinity(0))
    assert f"With {processors} processors tasks for more than {processors} workers wait" in job.stdout
    assert "sealed / plain, median (least)" in job.stdout


def check_figures(report: dict[str, Any]) -> None:
    sides, counts = ("plain", "sealed"), [1, 2, 3]
    grains = [f"W = {grain}" for grain in ("250 us", "1 ms", "5 ms", "25 ms")]
    computing = [count for count in counts if count <= len(os.sched_getaffinity(0))]
    assert curves(report, "speedup") == {
        (grain, side, how): there
        for grain in grains
        for side in sides
        for how, there in (("waiting", counts), ("computing", computing))
    }
    assert set(curves(report, "bandwidth")) == {("tasks", side, "") for side in sides}
    assert curves(report, "iso-grain") == {(f"G = {grain}", side, ""): counts for grain in (70, 300) for side in sides}
    measured = next(figure for figure in report["figures"] if figure["name"] == "iso-grain")["quantities"][1]["curves"]
    took = {(curve["name"], curve["side"]): [point["values"][0] for point in curve["points"]] for curve in measured}
    for side in sides:
        # G is what it says: tasks are at least so many times as long as their communication.
        for grain, one, other in zip((70, 300), took["Tw", side], took["Tc", side], strict=True):
            assert grain <= one / other < 3 * grain
    for there in curves(report, "share").values():
        assert there == pytest.approx([0, 100 / 3, 200 / 3, 100])
    assert set(map(tuple, curves(report, "share", 1).values())) == {(1, 2, 3)}
    figures = next(figure for figure in report["figures"] if figure["name"] == "share")
    for curve in figures["quantities"][1]["curves"]:
        assert sum(point["values"][0] for point in curve["points"]) == pytest.approx(100)
    kinds = {"pickling a list of numbers", "pickling records", "pickling an array", "a sealed link", "a link in clear"}
    assert kinds <= {name for name, _, _ in curves(report, "serialisation")}
    farms = ("farm, plain", "farm, sealed", "farm, sealed, pickling apart")
    partners = ("TCP", "TLS in Python", "TCP through gambeson proxy", *farms)
    expected = {(partner, "", manner) for partner in partners for manner in ("raw", "pickled")}
    assert set(curves(report, "proxy")) == set(curves(report, "proxy", 1)) == expected


@pytest.mark.namespaces
def test_workers_have_hosts_of_their_own_which_are_gone_at_the_end(
    gambeson: Path, package: Package, tmp_path: Path
) -> None:
    # They have no names, so they are there as long as a process in them; `check` says if one survives.
    report, _ = quick(gambeson, package, tmp_path, "--only", "speedup,share")
    assert "network namespaces" in report["site"]
    assert all(there[0] == 1 for there in curves(report, "speedup").values())


def test_without_matplotlib_there_are_tables_and_a_sentence(gambeson: Path, package: Package, tmp_path: Path) -> None:
    # One that cannot be found, for this call.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['matplotlib'] = None")
    path = f"{tmp_path}{os.pathsep}{package.folder}"
    options: list[str | Path] = [
        "--only",
        "bandwidth",
        "--quick",
        "--rounds",
        "1",
        "--local",
        "--pictures",
        tmp_path / "pictures",
    ]
    job = bench_farm(gambeson, "--python", package.python, *options, PYTHONPATH=path)
    assert job.status == 69, job.describe()
    assert "python -m pip install matplotlib" in job.stderr
    assert "| tasks, sealed |" in job.stdout
    assert not list((tmp_path / "pictures").iterdir())


def test_what_cannot_be_written_is_said_before_anything_is_measured(
    gambeson: Path, package: Package, tmp_path: Path
) -> None:
    options: list[str | Path] = ["--python", package.python, "--json", tmp_path / "nowhere" / "farm.json"]
    job = bench_farm(gambeson, *options, PYTHONPATH=str(package.folder), timeout=20)
    assert job.status == 71, job.describe()
    assert "No such file or directory" in job.stderr and "nowhere/farm.json" in job.stderr
    assert not job.stdout
