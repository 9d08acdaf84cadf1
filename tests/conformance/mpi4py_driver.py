"""Runs modules of mpi4py's own test suite on every rank and writes each test's begin and outcome to a file per rank.

    python mpi4py_driver.py TESTS OUT [options of the suite's main.py]

The suite's own output mixes the ranks' lines; a hang would hide who was where. Runs under the MPI's own Python.
"""

import pathlib
import sys
import tempfile
import unittest


class Recorder(unittest.TextTestResult):
    """Writes `begin ID`, then `OUTCOME ID`, unbuffered."""

    file = None

    def _write(self, word, test):
        if Recorder.file is None:
            from mpi4py import MPI

            folder = pathlib.Path(sys.argv[2])
            Recorder.file = (folder / f"rank-{MPI.COMM_WORLD.rank}").open("a", buffering=1)
        Recorder.file.write(f"{word} {test.id()}\n")

    def startTest(self, test):
        self._write("begin", test)
        super().startTest(test)

    def stopTest(self, test):
        self._write("end", test)
        super().stopTest(test)

    def addError(self, test, error):
        self._write("error", test)
        super().addError(test, error)

    def addFailure(self, test, error):
        self._write("failed", test)
        super().addFailure(test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._write("failed", test)
        super().addSubTest(test, subtest, error)

    def addSkip(self, test, reason):
        self._write("skipped", test)
        super().addSkip(test, reason)


if __name__ == "__main__":
    tests = sys.argv[1]
    sys.dont_write_bytecode = True
    sys.path.insert(0, tests)
    if pathlib.Path("/dev/shm").is_dir():
        # The tests of MPI's files wait for the disk most of their time.
        tempfile.tempdir = "/dev/shm"
    import main  # the suite's, not ours

    main.main(
        module=None,
        argv=[tests + "/main.py", "--quiet", *sys.argv[3:]],
        testRunner=unittest.TextTestRunner(resultclass=Recorder, verbosity=0),
    )
