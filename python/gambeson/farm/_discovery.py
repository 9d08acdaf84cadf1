"""Stations that are found on the local network: a question by multicast, answered by those that announce themselves.

What is answered is a hint and no more: a manager connects to what it finds only if it expects the key there, and the
link proves it. A question names the keys that are looked for, so nobody else's station answers.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterable

GROUP, PORT = "239.255.71.71", 7171
"""Of the organisation-local scope (RFC 2365): routers do not pass it on."""
QUESTION = "gambeson-farm-1?"
LONGEST = 1400


def _on(interface: int) -> bytes:
    """The group on an interface: a struct ip_mreqn."""
    return struct.pack("4s4si", socket.inet_aton(GROUP), bytes(4), interface)


class Announcer:
    """Answers questions for a station's key."""

    def __init__(self, key: bytes, listening: str) -> None:
        self._key = key.hex()
        self._port = int(listening.rpartition(":")[2])
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((GROUP, PORT))
        # On every interface: a host may be in several networks.
        for index, _ in socket.if_nameindex():
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _on(index))
        threading.Thread(target=self._serve, name="announcer", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                question, asker = self._socket.recvfrom(LONGEST)
            except OSError:
                return
            with contextlib.suppress(ValueError, AttributeError, TypeError, OSError):
                asked = json.loads(question)
                if asked.get("ask") == QUESTION and self._key in asked["keys"]:
                    answer = json.dumps({"key": self._key, "port": self._port, "id": asked["id"]})
                    # No longer than the question: nobody is flooded by way of this host.
                    if len(answer) <= len(question):
                        self._socket.sendto(answer.encode(), asker)

    def close(self) -> None:
        """Answers no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def find(keys: Iterable[str], patience: float = 1.0) -> dict[str, str]:
    """The addresses of stations with these keys that answer in so many seconds: by key."""
    wanted = sorted(set(keys))
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        deadline = time.monotonic() + patience
        asked = 0.0
        number = time.monotonic_ns()
        while len(found) < len(wanted) and (now := time.monotonic()) < deadline:
            if now - asked > 0.3:
                asked = now
                for at in range(0, len(wanted), 16):
                    question = json.dumps({"ask": QUESTION, "id": number, "keys": wanted[at : at + 16]}).encode()
                    for index, _ in socket.if_nameindex():
                        with contextlib.suppress(OSError):
                            asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _on(index))
                            asking.sendto(question, (GROUP, PORT))
            asking.settimeout(0.1)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                answer, (host, _) = asking.recvfrom(LONGEST)
                said = json.loads(answer)
                if said["id"] == number and said["key"] in wanted:
                    found.setdefault(said["key"], f"{host}:{int(said['port'])}")
    return found
