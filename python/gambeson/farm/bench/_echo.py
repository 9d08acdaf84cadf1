"""The process at the other end of what is no farm: `python -m gambeson.farm.bench._echo`. It ends with its standard
input.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import socket
import ssl
import struct
import sys
import threading
from pathlib import Path

from gambeson.farm._protocol import CLASS
from gambeson.link import Domain, Identity, Policy, Protection, Trust

ECHO = 9
"""The number under which links echo."""
_HEAD = struct.Struct("!QB")


def send(connection: socket.socket, message: bytes | bytearray, pickled: bool) -> None:
    """Sends a message with its length before it."""
    connection.sendall(_HEAD.pack(len(message), pickled))
    connection.sendall(message)


def receive(connection: socket.socket) -> tuple[bytearray, bool]:
    """The next message; `ConnectionError` if there is none."""
    count, pickled = _HEAD.unpack(_exactly(connection, _HEAD.size))
    return _exactly(connection, count), bool(pickled)


def _exactly(connection: socket.socket, count: int) -> bytearray:
    message = bytearray(count)
    view = memoryview(message)
    while view:
        if not (got := connection.recv_into(view)):
            raise ConnectionError
        view = view[got:]
    return message


def tls(folder: Path, server: bool) -> ssl.SSLContext:
    """TLS 1.3 with AES-256-GCM, in which both ends have the certificate in this folder, and trust no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(folder / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def serve(folder: Path | None) -> None:
    """Echoes what comes over TCP, under TLS if there is a certificate; what was pickled is loaded and pickled again."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if folder is not None:
            connection = tls(folder, server=True).wrap_socket(connection, server_side=True)
        try:
            while True:
                message, pickled = receive(connection)
                send(connection, pickle.dumps(pickle.loads(message), 5) if pickled else message, pickled)
        except (ConnectionError, ssl.SSLError):
            connection.close()


def link(manager: str, protection: Protection) -> Domain:
    """Echoes what comes over links."""
    domain = Domain(
        Identity.generate(),
        Trust().pinned(bytes.fromhex(manager), "bench"),
        listen=["127.0.0.1:0"],
        policy=Policy.uniform(protection),
        shm=False,
    )
    endpoint = domain._native.mailbox([], ECHO, 0, CLASS, protection.value, 32 << 20)
    said = {"key": domain.key_hash.hex(), "startpoint": bytes(endpoint.startpoint([]).encode()).hex()}
    print(json.dumps(said), flush=True)
    threading.Event().wait()
    return domain


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gambeson.farm.bench._echo")
    parser.add_argument("--tls", type=Path)
    parser.add_argument("--link")
    parser.add_argument("--protection", type=Protection, default=Protection.PRIVACY)
    options = parser.parse_args()
    threading.Thread(target=_follow, daemon=True).start()
    if options.link:
        link(options.link, options.protection)
    else:
        serve(options.tls)


def _follow() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
