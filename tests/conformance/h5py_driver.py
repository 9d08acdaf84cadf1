"""Runs h5py's own test suite on every rank and writes each test's begin and outcome to a file per rank.

    python h5py_driver.py OUT [options of pytest]

pytest's own output mixes the ranks' lines; a hang would hide who was where. Runs under the MPI's own Python.
"""

import pathlib
import sys

import pytest


class Recorder:
    """Writes `begin NAME`, then `OUTCOME NAME`, unbuffered."""

    def __init__(self, folder):
        # Not where this is loaded: processes that a test starts load it, too.
        from mpi4py import MPI

        self.file = (pathlib.Path(folder) / f"rank-{MPI.COMM_WORLD.rank}").open("a", buffering=1)

    def _write(self, word, node):
        path, _, name = node.partition("::")
        self.file.write(f"{word} {pathlib.PurePath(path).stem}.{name.replace('::', '.')}\n")

    def pytest_runtest_logstart(self, nodeid):
        self._write("begin", nodeid)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._write("failed" if report.when == "call" else "error", report.nodeid)
        elif report.skipped:
            self._write("skipped", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        self._write("end", nodeid)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(pytest.main(sys.argv[2:], plugins=[Recorder(sys.argv[1])]))
