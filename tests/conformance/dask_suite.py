"""Dask's own tests of comms and of what stands on them, with gambeson:// where they say tcp://.

    build/venv-tools/bin/python tests/conformance/dask_suite.py DISTRIBUTED [MODULE ...]

DISTRIBUTED is a checkout of dask/distributed at the version that build/venv-python has; its tests are in no package.
Each module runs twice, as it is and with the backend in place of Dask's for tcp://. What passes as it is and not with
the backend is an error, but for what OTHERWISE names. The package is the one that `make python` built.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.mpis import ROOT, venv
from harness.python import Package

MODULES = [
    "distributed/comm/tests/test_comms.py",
    "distributed/tests/test_core.py",
    "distributed/tests/test_batched.py",
    "distributed/tests/test_utils_comm.py",
    "distributed/tests/test_failed_workers.py",
    "distributed/tests/test_nanny.py",
    "distributed/tests/test_worker.py",
    "distributed/tests/test_scheduler.py",
    "distributed/tests/test_client.py",
    "distributed/tests/test_steal.py",
    "distributed/shuffle/tests/test_shuffle.py",
    "distributed/deploy/tests/test_local.py",
    "distributed/cli/tests/test_dask_scheduler.py",
    "distributed/cli/tests/test_dask_worker.py",
]

SOCKETS = "reaches into a socket of Tornado's, which comms of links have not"
MEMORY = "asks which memory Dask's own TCP comm puts a buffer into"
DESCRIPTORS = "counts open files; the domain that a process connects with stays open until its end"
OTHERWISE = {
    "test_comm_closed_on_write_error[tornado-BufferError]": SOCKETS,
    "test_comm_closed_on_write_error[tornado-CustomBase]": SOCKETS,
    "test_stop_listener_during_handle_stream[tornado]": SOCKETS,
    "test_heartbeat_missing_real_cluster": SOCKETS,
    "test_task_flight_compute_oserror": SOCKETS,
    "test_transition_waiting_memory": SOCKETS,
    "test_deadlock_resubmit_queued_tasks_fast[True]": SOCKETS,
    "test_deadlock_resubmit_queued_tasks_fast[False]": SOCKETS,
    "test_deadlock_dependency_of_queued_released_when_worker_removed[True]": SOCKETS,
    "test_deadlock_dependency_of_queued_released_when_worker_removed[False]": SOCKETS,
    "test_stimulus_from_erred_task": SOCKETS,
    "test_share_buffer_with_header[tornado-1-0-False]": MEMORY,
    "test_share_buffer_with_header[tornado-1-1800-False]": MEMORY,
    "test_share_buffer_with_header[tornado-200000-9500-False]": MEMORY,
    "test_share_buffer_with_header[tornado-200000-10500-True]": MEMORY,
    "test_share_buffer_with_header[tornado-350000-0-False]": MEMORY,
    "test_file_descriptors_dont_leak": DESCRIPTORS,
    "test_worker_fds": DESCRIPTORS,
    "test_num_fds": DESCRIPTORS,
}

# Every Python that the tests start does this first.
IN_PLACE = """
import functools, os, traceback
try:
    import distributed.comm.tcp as tcp
    from distributed.comm.registry import backends
    from gambeson.dask._backend import Backend
    from gambeson.dask._listener import GambesonConnector, GambesonListener

    class Connector(GambesonConnector):
        def __init__(self):
            super().__init__("tcp")

    class InPlace(Backend):
        scheme = "tcp"
        _connector_class = Connector

        def get_connector(self):
            return self._connector_class()

    backends["tcp"] = InPlace()
    tcp.TCPBackend, tcp.TCPConnector = InPlace, Connector
    tcp.TCPListener = functools.partial(GambesonListener, "tcp")
except BaseException:
    traceback.print_exc()
    os._exit(70)
"""


def run(checkout: Path, module: str, environment: dict[str, str], python: Path, folder: Path) -> dict[str, str]:
    """The outcome of each test of a module: passed, skipped, or failed with the reason."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    # `flaky` is a plugin's mark; warnings of what is deprecated are no errors of ours.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-o", "addopts=", "-o", "strict_markers=false"]
    command = [str(python), "-m", "pytest", *options, "--timeout=60", f"--junitxml={report}", module]
    subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not report.is_file():
        return {}
    outcomes: dict[str, str] = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        words = {child.tag for child in case}
        said = [child.attrib.get("message", "") for child in case if child.tag in ("failure", "error")]
        outcome = f"failed: {said[0][:200]}" if said else "skipped" if "skipped" in words else "passed"
        outcomes[case.attrib["name"]] = outcome
    return outcomes


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    checkout, modules = Path(sys.argv[1]).resolve(), sys.argv[2:] or MODULES
    python = venv("python") / "bin" / "python"
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    wheels = sorted((target / "wheels").glob("gambeson-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels or not (checkout / modules[0]).is_file():
        print(f"there is no wheel in {target / 'wheels'} (make python), or no {checkout / modules[0]}", file=sys.stderr)
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = Package(wheels[-1], python, folder / "package")
        (folder / "in-place").mkdir()
        (folder / "in-place" / "sitecustomize.py").write_text(IN_PLACE)
        credential = folder / "cluster.toml"
        package.call(f"from gambeson.dask import credential; credential({str(credential)!r})", folder)
        tools = [str(next((venv(name) / "lib").glob("python*/site-packages"))) for name in ("python", "tools")]
        plain = [str(checkout), *tools]
        environment = {**os.environ, "DASK_DISTRIBUTED__COMM__GAMBESON__CREDENTIAL": str(credential)}
        for module in modules:
            before = run(checkout, module, {**environment, "PYTHONPATH": ":".join(plain)}, python, folder)
            paths = [str(folder / "in-place"), str(package.folder), *plain]
            after = run(checkout, module, {**environment, "PYTHONPATH": ":".join(paths)}, python, folder)
            passed = {test for test, outcome in before.items() if outcome == "passed"}
            lost = {test for test in passed if after.get(test) != "passed"}
            new = lost - OTHERWISE.keys()
            wrong += len(new) + (not passed)
            print(
                f"{module}: {len(passed)} pass over tcp://, {len(passed - lost)} of them over gambeson://", flush=True
            )
            for test in sorted(lost):
                print(f"    {test}: {OTHERWISE.get(test, after.get(test, 'did not end'))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
