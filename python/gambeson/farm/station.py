"""A station: a host's place where managers recruit workers, without ssh or a scheduler between.

`gambeson station --help` says how it is run. It starts workers for managers whose keys it was told, and
ends each when its manager has gone, however that was.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gambeson.farm._discovery import Announcer
from gambeson.farm.worker import UNAVAILABLE
from gambeson.link import Domain, Error, HandlerRefused, Identity, Request, Trust

NAME = "gambeson/farm"
"""What a station's endpoint is published as, for keys with the role `manager`."""
START, INVITE = 0, 1
LOOK = 0.1
"""Seconds between two looks whether a manager is still there."""


class Station:
    """Starts workers for managers."""

    def __init__(
        self,
        identity: Identity,
        managers: list[str],
        listen: str,
        relays: list[str],
        slots: int,
        pinned: str | None,
        announces: bool,
    ) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._pinned = pinned
        self._starting = 0
        self.key = identity.key_hash
        trust = Trust()
        for key in managers:
            trust = trust.pinned(bytes.fromhex(key), f"the manager {key[:12]}", ["manager"])
        self.domain = Domain(identity, trust, listen=[listen], relays=relays, shm=False)
        endpoint = self.domain.endpoint({START: self._start, INVITE: self._invite}, class_name="control")
        endpoint.publish(NAME, ["manager"])
        self.announcer = Announcer(self.key, self.domain.listening[0]) if announces else None

    def _start(self, request: Request) -> Iterator[bytes]:
        """A worker for as long as the manager takes answers: its key, then how it ended."""
        with self._lock:
            if len(self._workers) + self._starting >= self._slots:
                what = f"all {self._slots} places of this station are taken"
                raise HandlerRefused(what)
            self._starting += 1
        command = [sys.executable, "-m", "gambeson.farm"]
        if self._pinned is not None:
            command += ["--pinned", self._pinned]
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert worker.stdout is not None
        line = worker.stdout.readline()
        with self._lock:
            self._starting -= 1
            if line:
                self._workers[json.loads(line)["key"]] = worker
        try:
            if not line:
                raise HandlerRefused("the worker did not come up; what it complains of stands in the station's output")
            print(f"a worker for {request.peer.name} on {request.peer.host}: process {worker.pid}", flush=True)
            yield line.encode()
            while worker.poll() is None and not request.is_cancelled:
                time.sleep(LOOK)
            yield json.dumps({"status": worker.poll()}).encode()
        finally:
            worker.kill()
            worker.wait()
            with self._lock:
                self._workers = {key: one for key, one in self._workers.items() if one is not worker}
            print(f"process {worker.pid} has ended", flush=True)

    def _invite(self, request: Request) -> bytes:
        """Hands a worker its invitation, as the manager that it was started for has it."""
        said = json.loads(request.payload)
        with self._lock:
            worker = self._workers.get(said["key"])
        if worker is None or worker.stdin is None:
            raise HandlerRefused("there is no such worker here, or not any more")
        worker.stdin.write(said["invitation"])
        worker.stdin.flush()
        return b""

    def close(self) -> None:
        """Ends all workers."""
        if self.announcer is not None:
            self.announcer.close()
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.kill()
        self.domain.close()


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="gambeson station",
        description="Starts workers on this host for managers that prove to have these keys.",
        epilog="Keys are made by: gambeson proxy keygen FILE, which prints the hash that the other side is told. "
        'A manager recruits here with farm.stations("HOST:PORT=HASH"), the hash being this station\'s.',
    )
    parser.add_argument(
        "--identity", required=True, type=Path, help="file with this station's key and certificate (PEM)"
    )
    parser.add_argument(
        "--manager", required=True, action="append", metavar="HASH", help="a manager's key hash; repeat"
    )
    parser.add_argument("--listen", default="0.0.0.0:7100", metavar="ADDRESS", help="default: 0.0.0.0:7100")
    parser.add_argument(
        "--relay", action="append", default=[], metavar="HOST:PORT", help="wait for managers at a relay, too; repeat"
    )
    parser.add_argument(
        "--slots", type=int, default=len(os.sched_getaffinity(0)), help="workers at a time (processors)"
    )
    parser.add_argument("--pinned", metavar="FILE", help="run only code whose SHA-256 stands here, one a line")
    parser.add_argument(
        "--announce", action="store_true", help="answer managers of this network that look for stations"
    )
    options = parser.parse_args(arguments)
    try:
        pem = options.identity.read_bytes()
        pinned = None if options.pinned is None else str(Path(options.pinned).resolve(strict=True))
        identity, places = Identity.from_pem(pem, pem), (options.listen, options.relay)
        station = Station(identity, options.manager, *places, options.slots, pinned, options.announce)
    except OSError as error:
        print(f"gambeson station: {error.filename or options.listen}: {error.strerror or error}", file=sys.stderr)
        return UNAVAILABLE
    except (ValueError, Error) as error:
        print(f"gambeson station: {error}", file=sys.stderr)
        return UNAVAILABLE
    print(f"station {station.key.hex()} at {', '.join(station.domain.listening)}, {options.slots} places", flush=True)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    station.close()
    return 0
