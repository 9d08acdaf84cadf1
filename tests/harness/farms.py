"""Managers of farms on a host of one's own, with workers on others."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.hosts import Hosts
from harness.jobs import Job
from harness.python import Package

# Workers run under the agent of the namespaces in place of ssh, which gives them nothing of the environment.
HEAD = """
import functools, json, os, sys, time
from gambeson import farm

# These hosts share their memory, which real ones do not.
Manager = functools.partial(farm.Manager, shm=False)

AGENT, FOLDER = {agent!r}, {folder!r}

def ssh(*names, worker=()):
    python = ["env", "PYTHONPATH=" + FOLDER, sys.executable, *worker]
    return farm.ssh(*names, slots=1, python=python, command=[AGENT])

def outcomes(results):
    return [str(r.error) if isinstance(r, farm.Failure) else r for r in results]

"""


class Farmer:
    """Runs managers on h1."""

    def __init__(self, site: Hosts, package: Package, gambeson: Path, folder: Path) -> None:
        self.site = site
        self.package = package
        self.gambeson = gambeson
        self.folder = folder

    def call(self, program: str) -> Job:
        head = HEAD.format(agent=str(self.site.agent), folder=str(self.package.folder))
        path = self.folder / "program.py"
        path.write_text(head + program)
        return self.site.run("h1", [str(self.package.python), str(path)], env=self.package.environment(), timeout=90)

    def run(self, program: str) -> Any:
        job = self.call(program)
        assert job.status == 0, job.describe()
        return json.loads(job.stdout)

    @contextlib.contextmanager
    def capture(self, into: Path) -> Iterator[None]:
        """Writes all that goes between the hosts to a file."""
        command = ["ip", "netns", "exec", self.site.switch, "tcpdump", "-i", "to-h1", "-U", "-s", "0"]
        # With room for what is faster than the disk.
        command += ["-B", "32768", "-w", str(into)]
        tap = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert tap.stderr is not None
            for line in tap.stderr:
                if "listening on" in line:
                    break
            yield
            # It may keep what it saw last for a second.
            size = -1
            while size < (size := into.stat().st_size):
                time.sleep(1.2)
        finally:
            tap.terminate()
            _, said = tap.communicate()
        assert "\n0 packets dropped by kernel" in said, said
