"""The backend as Dask's registry of comms wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.registry import Backend as CommBackend
from distributed.utils import ensure_ip, get_ip

from gambeson.dask._listener import GambesonConnector, GambesonListener


class Backend(CommBackend):
    """`gambeson://host:port`."""

    scheme = "gambeson"

    def get_connector(self) -> GambesonConnector:
        return GambesonConnector(self.scheme)

    def get_listener(
        self, loc: str, handle_comm: Callable[..., Any], deserialize: bool, **connection_args: Any
    ) -> GambesonListener:
        return GambesonListener(self.scheme, loc, handle_comm, deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        host: str = parse_host_port(loc)[0]
        return host

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        address: str = unparse_host_port(ensure_ip(host), port)
        return address

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        address: str = unparse_host_port(get_ip(ensure_ip(host)), None)
        return address
