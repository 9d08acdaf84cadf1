"""Who listens for comms, and who opens them.

connector                                                        listener
attach("dask") ───── a session, proved at both ends ───────────>  its domain: the lobby is published as "dask"
OPEN: a startpoint to my end, where I am ── sealed ────────────>  binds it: a link back,
      and one for data that may be unsealed, if any may           and one for that, if policies agree
      <───────────────────────── answer: a startpoint to its end
binds it: a link there
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import itertools
import json
import os
import random
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, CommClosedError, Connector, FatalCommClosedError
from distributed.comm.utils import ensure_concrete_host
from distributed.utils import ensure_ip, get_ip

from gambeson import link
from gambeson.dask import _labels
from gambeson.dask._comm import Gambeson, logger
from gambeson.dask._ends import Ends
from gambeson.dask._place import Place, closing, connecting, elsewhere, stated
from gambeson.dask._settings import Settings

NAME = "dask"
"""What a listener's lobby is published as."""
OPEN = 1
VERSION = 1
REFUSED = 2.0
"""So long who is refused tries again: a listener at which hundreds arrive at once sends some of them away."""

_numbers = itertools.count(1)


class GambesonListener(BaseListener):
    """Takes comms at an address."""

    def __init__(
        self,
        scheme: str,
        location: str,
        handle: Callable[..., Any],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self.prefix = f"{scheme}://"
        self.ip, self.port = parse_host_port(location, default_port)
        self._handle = handle
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._default_host = default_host
        self._settings = Settings.find(connection_args)
        self._place: Place | None = None
        self._lobby: link.Endpoint | None = None
        self._bound: tuple[str, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unlabelled: _labels.Unlabelled | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The scheduler or worker that comms are for: they are handed to a method of it.
        self._unlabelled = await _labels.install(getattr(self._handle, "__self__", None), self._settings.chooses)
        if self.port and (ending := closing()):
            # The port may be that of one that was stopped a moment ago.
            await asyncio.wait([asyncio.wrap_future(one) for one in ending], timeout=5)
        domain = self._listening()
        self._place = Place(domain)
        self._lobby = domain.endpoint({OPEN: self._open}, class_name="control", protection=link.Protection.PRIVACY)
        self._lobby.publish(NAME, [self._settings.role])
        host, port = parse_host_port(domain.listening[0])
        # As Dask calls all of a host's addresses, IPv6 included.
        self._bound = (host if self.ip else "0.0.0.0", port)

    def _listening(self) -> link.Domain:
        hosts = [ensure_ip(self.ip)] if self.ip else ["::", "0.0.0.0"]
        while True:
            host = hosts.pop(0)
            address = stated(ensure_concrete_host(host if self.ip else "0.0.0.0", self._default_host))
            try:
                return self._settings.open(unparse_host_port(host, self.port), address)
            except link.SystemRefused as cause:
                # Dask goes on with the next port of a range if this is the number for one that is taken.
                found = re.search(r"\(os error (\d+)\)", str(cause))
                number = int(found[1]) if found else 0
                if not hosts or number == errno.EADDRINUSE:
                    raise OSError(number, str(cause)) from cause

    def stop(self) -> None:
        place, self._place = self._place, None
        lobby, self._lobby = self._lobby, None
        if lobby is not None:
            lobby.close()
        if place is not None:
            place.release()

    def get_host_port(self) -> tuple[str, int]:
        """Where it listens."""
        if self._bound is None:
            raise ValueError("this listener has not been started")
        return self._bound

    @property
    def listen_address(self) -> str:
        return f"{self.prefix}{unparse_host_port(*self.get_host_port())}"

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        return f"{self.prefix}{unparse_host_port(ensure_concrete_host(host, self._default_host), port)}"

    def _open(self, request: link.Request) -> bytes:
        """Somebody wants a comm. This is a thread of the domain's."""
        place = self._place
        if place is None:
            raise link.HandlerRefused("this listener was stopped")
        said = json.loads(request.payload)
        if said.get("version") != VERSION:
            raise link.HandlerRefused(
                f"this is version {VERSION} of Gambeson's comms, and yours is {said.get('version')}"
            )
        ends = Ends(place, accepted=True)
        try:
            capability = ends.capability()
            ends.bind(bytes.fromhex(said["startpoint"]), connect_timeout())
            if not self._settings.chooses:
                ends.rule = self._settings.why_sealed
            elif offered := said.get("clear"):
                ends.bind_clear(bytes.fromhex(offered), connect_timeout())
            else:
                ends.rule = "the other end has all of it sealed"
            self._loop.call_soon_threadsafe(self._begin, ends, str(said["from"]), str(said["to"]))
        except BaseException:
            ends.close()
            raise
        return capability

    def _begin(self, ends: Ends, there: str, here: str) -> None:
        if self._place is None:
            ends.close()
            return
        task = self._loop.create_task(self._serve(ends, there, here))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, ends: Ends, there: str, here: str) -> None:
        comm = Gambeson(ends, self.prefix + here, self.prefix + there, self._deserialize)
        comm.allow_offload = self._allow_offload
        comm.unlabelled = self._unlabelled
        try:
            await self.on_connection(comm)
        except CommClosedError:
            logger.info("Connection from %s closed before handshake completed", comm.peer_address)
            return
        handled = self._handle(comm)
        if inspect.isawaitable(handled):
            await handled


class GambesonConnector(Connector):
    """Opens comms."""

    def __init__(self, scheme: str) -> None:
        self.prefix = f"{scheme}://"

    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> Gambeson:
        settings = Settings.find(connection_args)
        begun = elsewhere(_connected, settings, address)
        try:
            ends, local = await asyncio.shield(asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            begun.add_done_callback(_unwanted)
            raise
        return Gambeson(ends, self.prefix + local, self.prefix + address, deserialize)


def _unwanted(done: Future[tuple[Ends, str]]) -> None:
    """Nobody waits any more for what came of it."""
    if done.exception() is None:
        done.result()[0].close()


def _connected(settings: Settings, address: str) -> tuple[Ends, str]:
    """Both ends of a comm, and what the own one is called. It waits."""
    host, port = parse_host_port(address)
    there = ensure_ip(host)
    here = get_ip(there)
    local = unparse_host_port(here, os.getpid() << 20 | next(_numbers))
    place = connecting(settings, here)
    deadline = time.monotonic() + REFUSED
    try:
        while True:
            try:
                return _ends(place, settings, unparse_host_port(there, port), address, local), local
            except link.Refused as cause:
                if time.monotonic() > deadline:
                    raise FatalCommClosedError(f"no comm with {address}: {cause}") from cause
            except link.Garbled as cause:
                raise FatalCommClosedError(f"no comm with {address}: {cause}") from cause
            except link.Error as cause:
                raise CommClosedError(f"no comm with {address}: {cause}") from cause
            time.sleep(random.uniform(0.1, 0.5))
    finally:
        place.release()


def _ends(place: Place, settings: Settings, where: str, address: str, local: str) -> Ends:
    timeout = connect_timeout()
    with place.domain.attach(where, NAME, role=settings.role, timeout=timeout) as lobby:
        ends = Ends(place, accepted=False, clear=settings.chooses)
        try:
            said = {"version": VERSION, "startpoint": ends.capability().hex(), "from": local, "to": address}
            if (clear := ends.clear_capability()) is not None:
                said["clear"] = clear.hex()
            ends.bind(lobby.call(OPEN, json.dumps(said).encode(), timeout), timeout)
        except BaseException:
            ends.close()
            raise
    return ends


def connect_timeout() -> float:
    """How long Dask waits for a connection, in seconds."""
    return float(parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"), default="seconds"))
