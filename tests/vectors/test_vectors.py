"""The vectors that the Rust code is tested with are what a second implementation computes."""

from __future__ import annotations

import json

import pytest

from vectors.cases import CASES, DIRECTORY, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_the_file_holds_what_the_second_implementation_computes(case: Case) -> None:
    assert json.loads((DIRECTORY / case.path).read_text()) == case.document()


def test_every_file_has_its_case() -> None:
    files = {
        str(path.relative_to(DIRECTORY))
        for kind in {case.path.split("/")[0] for case in CASES}
        for path in (DIRECTORY / kind).iterdir()
    }
    assert files == {case.path for case in CASES}


def test_both_ends_of_the_pair_expect_the_same() -> None:
    here, there = (
        json.loads((DIRECTORY / "key_schedule" / name).read_text())["expect"]
        for name in ("pair.json", "other-end.json")
    )
    for part in ("root", "connection_id", "first_empty_tag"):
        assert here[f"send_{part}"] == there[f"receive_{part}"] != here[f"receive_{part}"] == there[f"send_{part}"]
