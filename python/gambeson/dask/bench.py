"""How fast comms are, `gambeson://` beside `tcp://` and `tls://`: python -m gambeson.dask.bench

A process of its own echoes what comes, for each contender; arrays go there and back, in rounds in which all contenders
have their turns. CPU time is that of both processes, over the bytes that went either way. `--crowd` says how many pairs
there are at once in the rows that say so, each with a process of its own.

With `--fetch` arrays are asked for as workers do, and come one way. They need not be sealed where policies trust the
network, which is another contender then.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy
from distributed import Security
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

from gambeson.dask import credential

CONTENDERS = ("tcp", "tls", "gambeson", "gambeson, TCP only")
TRUSTED = ("gambeson, trusted", "gambeson, trusted, TCP only")
"""Contenders of which nobody labels what they send, and whose policy says that this is not encrypted."""
SIZES = (1, 16, 64)
PINGS = 200


def configure(contender: str, folder: Path) -> dict[str, Any]:
    """Sets what Dask's configuration has for a contender; the arguments of its connections."""
    settings = {"credential": credential(folder / "cluster.toml"), "shm": "TCP" not in contender}
    if contender in TRUSTED:
        settings["policy"] = str(folder / "gambeson.toml")
    dask.config.set({"distributed.comm.gambeson": settings})
    if contender != "tls":
        return {}
    pem = {"tls_ca_file": str(folder / "cert.pem")}
    for role in ("client", "scheduler"):
        pem |= {f"tls_{role}_cert": str(folder / "cert.pem"), f"tls_{role}_key": str(folder / "key.pem")}
    arguments: dict[str, Any] = Security(require_encryption=True, **pem).get_connection_args("client")
    return arguments


async def echo(contender: str, folder: Path) -> None:
    """The process at the other end."""
    arguments = configure(contender, folder)
    if contender == "tls":
        pem = {f"tls_scheduler_{part}": str(folder / f"{part}.pem") for part in ("cert", "key")}
        security = Security(require_encryption=True, tls_ca_file=str(folder / "cert.pem"), **pem)
        arguments = security.get_listen_args("scheduler")
    over = asyncio.Event()

    async def handle(comm: Any) -> None:
        if contender in TRUSTED:
            comm.unlabelled = lambda keys: True
        try:
            while True:
                message = await comm.read()
                if message == "cpu":
                    message = {"cpu": time.process_time()}
                elif "array" in message:
                    message = {"array": to_serialize(message["array"])}
                elif message["op"] == "get_data":
                    array = data(message["keys"][0])
                    message = {"status": "OK", "data": {message["keys"][0]: to_serialize(array)}}
                await comm.write(message)
        except CommClosedError:
            over.set()

    scheme = contender.partition(",")[0]
    async with listen(f"{scheme}://127.0.0.1", handle, deserialize=True, **arguments) as listener:
        print(listener.contact_address, flush=True)
        await over.wait()


@functools.cache
def data(size: int) -> Any:
    """An array of so many MB."""
    return numpy.random.default_rng(size).integers(0, 256, size * 1_000_000, "u1")


class Pair:
    """A comm with a process of its own at the other end."""

    def __init__(self, contender: str, folder: Path) -> None:
        self.contender = contender
        command = [sys.executable, "-m", "gambeson.dask.bench", "--echo", contender, "--folder", str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        self._folder = folder

    async def open(self) -> Pair:
        self.comm = await connect(self._address, **configure(self.contender, self._folder))
        return self

    async def there_and_back(self, size: int) -> None:
        await self.comm.write({"array": to_serialize(data(size))})
        assert (await self.comm.read())["array"].nbytes == size * 1_000_000

    async def fetch(self, size: int) -> None:
        await self.comm.write({"op": "get_data", "keys": [size]})
        assert (await self.comm.read())["data"][size].nbytes == size * 1_000_000

    async def ping(self) -> None:
        await self.comm.write({"op": "ping"})
        await self.comm.read()

    async def cpu(self) -> float:
        """CPU time of the other process."""
        await self.comm.write("cpu")
        used: float = (await self.comm.read())["cpu"]
        return used

    async def close(self) -> None:
        await self.comm.close()
        self._process.wait(20)


@dataclass
class Figures:
    """What was measured of one contender at one size, a figure for each round."""

    rate: list[float] = field(default_factory=list)
    """MB/s, over all ways that arrays went."""
    cpu: list[float] = field(default_factory=list)
    """ns a byte."""


async def exchange(pairs: list[Pair], size: int, fetch: bool, into: Figures) -> None:
    """One turn of a contender."""
    times = max(1, 64 // size // len(pairs))
    before = time.process_time() + sum([await pair.cpu() for pair in pairs])
    begun = time.perf_counter()

    async def one(pair: Pair) -> None:
        for _ in range(times):
            await (pair.fetch(size) if fetch else pair.there_and_back(size))

    await asyncio.gather(*map(one, pairs))
    took = time.perf_counter() - begun
    after = time.process_time() + sum([await pair.cpu() for pair in pairs])
    moved = (1 if fetch else 2) * size * 1_000_000 * times * len(pairs)
    into.rate.append(moved / took / 1e6)
    into.cpu.append((after - before) / moved * 1e9)


async def measure(folder: Path, rounds: int, crowd: int, fetch: bool) -> dict[str, dict[str, Any]]:
    """All contenders, alternated: by what was measured, then by contender."""
    names = CONTENDERS + TRUSTED if fetch else CONTENDERS
    found: dict[str, dict[str, Any]] = {"round trip, us": {name: [] for name in names}}
    for size in SIZES:
        for count in (1, crowd):
            found[label(size, count)] = {name: Figures() for name in names}
    pairs = {name: [await Pair(name, folder).open() for _ in range(crowd)] for name in names}
    for turn in range(rounds + 1):
        # Whoever is first in one round is last in the next; the first round only warms up.
        order = names if turn % 2 else names[::-1]
        for name in order:
            begun = time.perf_counter()
            for _ in range(PINGS):
                await pairs[name][0].ping()
            if turn:
                found["round trip, us"][name].append((time.perf_counter() - begun) / PINGS * 1e6)
        for size in SIZES:
            for count in (1, crowd):
                for name in order:
                    figures = found[label(size, count)][name] if turn else Figures()
                    await exchange(pairs[name][:count], size, fetch, figures)
    for pair in [pair for several in pairs.values() for pair in several]:
        await pair.close()
    return found


def label(size: int, count: int) -> str:
    return f"{size} MB" if count == 1 else f"{size} MB, {count} pairs"


def against(ours: list[float], theirs: list[float]) -> str:
    """Ratios of rounds: their median, and the least."""
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f})"


def report(found: dict[str, dict[str, Any]]) -> str:
    """A table for people: medians, and ratios of gambeson:// as median (least)."""
    names = list(found["round trip, us"])
    lines = [
        "| | " + " | ".join(names) + " | gambeson over tcp | over tls |",
        "|---" * (len(names) + 3) + "|",
    ]
    rows: list[tuple[str, dict[str, list[float]]]] = []
    for what, by_name in found.items():
        if what.startswith("round"):
            rows.append((what, by_name))
            continue
        rows.append((f"{what}, MB/s", {name: figures.rate for name, figures in by_name.items()}))
        rows.append((f"{what}, CPU, ns a byte", {name: figures.cpu for name, figures in by_name.items()}))
    for what, values in rows:
        medians = " | ".join(f"{statistics.median(values[name]):.4g}" for name in names)
        ratios = " | ".join(against(values["gambeson"], values[name]) for name in ("tcp", "tls"))
        lines.append(f"| {what} | {medians} | {ratios} |")
    return "\n".join(lines)


def certificate(folder: Path) -> None:
    """What tls:// is run with."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(folder / "key.pem")]
    made = ["-out", str(folder / "cert.pem"), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", "req", "-x509", *key, *made], check=True, capture_output=True)


def trusting(folder: Path) -> None:
    """By what a policy says so."""
    rule = '[[rule]]\nbetween = ["*", "*"]\nclass = "task"\nprotection = "integrity"\n'
    (folder / "gambeson.toml").write_text(f'protection = "privacy"\n{rule}')
    (folder / "gambeson.toml").chmod(0o600)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gambeson.dask.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--crowd", type=int, default=4, help="pairs at once (default 4)")
    parser.add_argument("--fetch", action="store_true", help="arrays come one way, sealed and not")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--echo", choices=CONTENDERS + TRUSTED, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        asyncio.run(echo(options.echo, options.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        certificate(Path(folder))
        trusting(Path(folder))
        found = asyncio.run(measure(Path(folder), options.rounds, options.crowd, options.fetch))
    print(report(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, default=vars, indent=1))


if __name__ == "__main__":
    main()
