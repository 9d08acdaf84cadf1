"""The example of patients' records under two labels: each identity gets its part, and nobody else anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness import hdf5
from harness.jobs import run_marked
from harness.mpis import ROOT, Mpi, Unavailable, clean_environment


@pytest.mark.timeout(300)
@pytest.mark.mpis("mpich", "openmpi")
def test_each_identity_reads_its_part_of_an_hdf5_file(gambeson: Path, mpi: Mpi) -> None:
    try:
        hdf5.library(mpi)
    except Unavailable as reason:
        pytest.skip(str(reason))
    environment = {**clean_environment(), "GAMBESON": str(gambeson)}
    demo = [sys.executable, str(ROOT / "examples" / "patients" / "demo.py"), mpi.name]
    said = run_marked(demo, env=environment, timeout=280).check().stdout
    assert said.count("read diagnoses and identities of patients") == 4, said
    assert said.count("read diagnoses of patients") == 2, said
    assert said.count('refused: patients.h5: region 1 (label "identity")') == 2, said
    assert 'region 1 (label "identity"), block' in said.rpartition("file verify")[2], said
