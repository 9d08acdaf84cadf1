"""Who seals: nobody, the thread that sends, native threads of the farm, or a proxy beside it. Fig. 6 of the paper."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gambeson.farm._manager import Manager
from gambeson.farm.bench._bench import Bench, compute
from gambeson.farm.bench._echo import receive, send, tls
from gambeson.farm.bench._figure import PLAIN, SEALED, Figure, Quantity
from gambeson.farm.bench._partner import Unavailable, echo, made, started
from gambeson.farm.bench._serialisation import numbers
from gambeson.farm.bench._site import Site
from gambeson.farm.bench._tasks import same

LENGTHS = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
RAW, PICKLED = "raw", "pickled"


class Partner(ABC):
    """Somebody who gives back what he is given."""

    @abstractmethod
    def raw(self, message: bytes) -> None:
        """Bytes go there and come back."""

    @abstractmethod
    def pickled(self, value: Any) -> None:
        """Something goes there and comes back that has to be pickled."""


class Connection(Partner):
    """Over a socket, by this thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def raw(self, message: bytes) -> None:
        send(self._connection, message, False)
        receive(self._connection)

    def pickled(self, value: Any) -> None:
        send(self._connection, pickle.dumps(value, 5), True)
        pickle.loads(receive(self._connection)[0])


class Farm(Partner):
    """Tasks of a farm with one worker, each a stream of its own."""

    def __init__(self, manager: Manager[Any, Any]) -> None:
        self._manager = manager

    def raw(self, message: bytes) -> None:
        self.pickled(message)

    def pickled(self, value: Any) -> None:
        compute(self._manager, [value])


class Apart(Farm):
    """Tasks of one stream, which another process iterates over, and pickles while the one before is away."""

    def __init__(self, manager: Manager[Any, Any]) -> None:
        super().__init__(manager)
        self._value: Any = None
        self._results: Iterator[Any] = iter(())

    def pickled(self, value: Any) -> None:
        if value is not self._value:
            self._value, self._results = value, self._manager.run(itertools.repeat(value))
        next(self._results)


@contextlib.contextmanager
def tcp(bench: Bench) -> Iterator[Partner]:
    """TCP, and nothing else."""
    del bench
    with echo() as (said, _), socket.create_connection(("127.0.0.1", said["port"])) as connection:
        yield Connection(connection)


@contextlib.contextmanager
def tls_in_python(bench: Bench) -> Iterator[Partner]:
    """TLS 1.3 by Python's ssl: who sends seals."""
    if not (bench.folder / "cert.pem").exists():
        key = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            f"{bench.folder}/key.pem",
        ]
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        made(["openssl", "req", "-x509", *key, "-out", f"{bench.folder}/cert.pem", "-days", "2", *subject])
    with echo("--tls", str(bench.folder)) as (said, _):
        context = tls(bench.folder, server=False)
        with (
            socket.create_connection(("127.0.0.1", said["port"])) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            yield Connection(connection)


@contextlib.contextmanager
def proxies(bench: Bench) -> Iterator[Partner]:
    """TCP through a pair of `gambeson proxy`."""
    if bench.gambeson is None:
        raise Unavailable("gambeson, the command, is not in PATH")
    proxy = [bench.gambeson, "proxy"]
    near, far = (_key(bench.folder / f"{end}.pem", proxy) for end in ("near", "far"))
    with contextlib.ExitStack() as stack:
        service, _ = stack.enter_context(echo())
        serve = ["serve", "--identity", f"{bench.folder}/far.pem", "--listen", "127.0.0.1:0", "--accept", near]
        serve += ["--service", f"127.0.0.1:{service['port']}", "--json"]
        there, _ = stack.enter_context(started([*proxy, *serve]))
        connect = ["connect", "--identity", f"{bench.folder}/near.pem", "--listen", "0", "--expect", far]
        here, _ = stack.enter_context(started([*proxy, *connect, "--to", there["listening"], "--json"]))
        port = int(here["listening"].rpartition(":")[2])
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield Connection(connection)
        # A proxy that ended before its connection would complain.
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def _key(identity: Path, proxy: list[str]) -> str:
    """The key of an end, made the first time."""
    told = identity.with_suffix(".key")
    if not told.exists():
        told.write_text(made([*proxy, "keygen", str(identity)]).split()[-1])
    return told.read_text()


def farm(
    side: str, kind: type[Farm] = Farm, **options: Any
) -> Callable[[Bench], contextlib.AbstractContextManager[Partner]]:
    """The farm over TCP, its options besides."""

    @contextlib.contextmanager
    def there(bench: Bench) -> Iterator[Partner]:
        with bench.side(same, 1, side, **options) as manager:
            yield kind(manager)

    return there


PARTNERS: dict[str, Callable[[Bench], contextlib.AbstractContextManager[Partner]]] = {
    "TCP": tcp,
    "TLS in Python": tls_in_python,
    "TCP through gambeson proxy": proxies,
    "farm, plain": farm(PLAIN),
    "farm, sealed": farm(SEALED),
    # As much memory as one message at a time takes.
    "farm, sealed, pickling apart": farm(SEALED, Apart, proxy="process", memory=1),
}


def proxy(bench: Bench) -> Figure:
    """Fig. 6."""
    bandwidth = Quantity("Bandwidth", "length of a message", "MB/s", form="lengths")
    thread = Quantity("The sender's own processor time", "length of a message", "ns a byte", form="lengths")
    lengths = LENGTHS[:4] if bench.quick else LENGTHS
    missing: dict[str, str] = {}
    bench = replace(bench, site=Site())
    for name in bench.turns(list(PARTNERS)):
        try:
            with PARTNERS[name](bench) as partner:
                for count in lengths:
                    exchanges = {
                        RAW: (partner.raw, bench.message(count)),
                        PICKLED: (partner.pickled, numbers(bench, count)),
                    }
                    for how, (exchange, message) in exchanges.items():
                        size = count if how == RAW else len(pickle.dumps(message, 5))
                        rate, own = _measure(bench, exchange, message, 2 * size)
                        bandwidth.curve(name, manner=how).add(count, rate / 1e6)
                        thread.curve(name, manner=how).add(count, own * 1e9)
        except Unavailable as why:
            missing[name] = f"{name} is left out: {why}."
    notes = [
        "All on this host, over TCP; one message at a time, there and back. Raw: bytes; pickled: a list of numbers.",
        "The list is pickled, at the other end loaded and pickled again, and loaded here. The sender's own processor "
        "time is that of the thread that sends and waits, and not of those that seal for it. Pickling apart is what a "
        "process of its own does for a stream, which has the next message ready when one is back.",
        *missing.values(),
    ]
    return Figure("proxy", "Who seals (Fig. 6)", [bandwidth, thread], notes)


def _measure(bench: Bench, exchange: Callable[[Any], None], message: Any, count: int) -> tuple[float, float]:
    """Bytes a second, and the thread's own seconds for a byte."""
    exchange(message)
    began, own, times = time.perf_counter(), time.thread_time(), 0
    while (took := time.perf_counter() - began) < bench.budget / 2 or times < 3:
        exchange(message)
        times += 1
    return count * times / took, (time.thread_time() - own) / times / count
